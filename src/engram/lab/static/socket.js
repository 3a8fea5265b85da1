// The WebSocket to the lab. Every request has an id; a response is one message, or several parts and then the last.
//
//   const { systems } = await request("systems");
//   const stop = subscribe("watch", { name: "gpt-1" }, (part) => …);   // until stop() or the page is left
//   const latest = channel();  latest("attack", {…}).then(…)            // a new request on a channel cancels the one before

const pending = new Map();
const unsent = [];
let socket = null;
let lastId = 0;
const listeners = [];

export const onConnection = (listener) => listeners.push(listener);

function connect() {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.onopen = () => {
    listeners.forEach((listener) => listener(true));
    for (const [id, one] of pending)
      if (one.reconnects) transmit({ id, method: one.method, params: one.params });
    unsent.splice(0).forEach(transmit);
  };
  socket.onmessage = ({ data }) => receive(JSON.parse(data));
  socket.onclose = () => {
    listeners.forEach((listener) => listener(false));
    for (const [id, one] of pending) {
      if (one.reconnects) continue; // a subscription continues when the lab is back
      pending.delete(id);
      one.reject(new Error("The lab does not answer: is it still running?"));
    }
    setTimeout(connect, 1000);
  };
}

function transmit(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
  else if (!pending.get(message.id)?.reconnects && !("cancel" in message)) unsent.push(message);
}

function receive(message) {
  const one = pending.get(message.id);
  if (!one) return;
  if ("part" in message) return one.part(message.part);
  pending.delete(message.id);
  if ("error" in message) one.reject(new Error(message.error));
  else one.resolve(message.done);
}

function send(method, params, part, reconnects) {
  const id = (lastId += 1);
  const end = new Promise((resolve, reject) => {
    pending.set(id, { resolve, reject, part, reconnects, method, params });
    transmit({ id, method, params });
  });
  const stop = () => {
    if (pending.delete(id)) transmit({ cancel: id });
  };
  return { end, stop };
}

export const request = (method, params = {}, part = () => {}) =>
  send(method, params, part, false).end;

// Receive parts until stopped; the subscription is renewed when the connection is restored.
export function subscribe(method, params, part, failed = () => {}) {
  const { end, stop } = send(method, params, part, true);
  end.catch(failed);
  return stop;
}

// Requests of which only the newest matters (a slider sends many): a new one cancels the one before.
export function channel() {
  let stop = () => {};
  const latest = (method, params = {}, part = () => {}) => {
    stop();
    const sent = send(method, params, part, false);
    stop = sent.stop;
    return sent.end;
  };
  latest.stop = () => stop();
  return latest;
}

// Decode the 32-bit floats of `pack_array` in plots/arrays.py: { shape, values }, with at(i, j, …)
export function decodeArray({ shape, f32 }) {
  const bytes = Uint8Array.from(atob(f32), (c) => c.charCodeAt(0));
  const values = new Float32Array(bytes.buffer);
  const strides = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
  return {
    shape,
    values,
    at: (...place) => values[place.reduce((sum, i, d) => sum + i * strides[d], 0)],
  };
}

connect();
