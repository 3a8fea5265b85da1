// The one socket to the lab. Every ask has a number; answers come in parts, or at once.
//
//   const { systems } = await ask("systems");
//   const stop = follow("watch", { name: "gpt-1" }, (part) => …);      // until stop() or the page is left
//   const latest = channel();  latest("attack", {…}).then(…)            // a new ask on a channel drops the one before

const waiting = new Map();
const unsent = [];
let socket = null;
let number = 0;
let listeners = [];

export const onLink = (listener) => listeners.push(listener);

function connect() {
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.onopen = () => {
    listeners.forEach((listener) => listener(true));
    for (const [id, one] of waiting) if (one.again) transmit({ id, do: one.do, with: one.with });
    unsent.splice(0).forEach(transmit);
  };
  socket.onmessage = ({ data }) => hear(JSON.parse(data));
  socket.onclose = () => {
    listeners.forEach((listener) => listener(false));
    for (const [id, one] of waiting) {
      if (one.again) continue;  // what is followed goes on when the lab is back
      waiting.delete(id);
      one.reject(new Error("The lab does not answer: is it still running?"));
    }
    setTimeout(connect, 1000);
  };
}

function transmit(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
  else if (!waiting.get(message.id)?.again && !("cancel" in message)) unsent.push(message);
}

function hear(message) {
  const one = waiting.get(message.id);
  if (!one) return;
  if ("part" in message) return one.part(message.part);
  waiting.delete(message.id);
  if ("error" in message) one.reject(new Error(message.error));
  else one.resolve(message.done);
}

function begin(what, given, part, again) {
  const id = (number += 1);
  const end = new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject, part, again, do: what, with: given });
    transmit({ id, do: what, with: given });
  });
  const stop = () => { if (waiting.delete(id)) transmit({ cancel: id }); };
  return { end, stop };
}

export const ask = (what, given = {}, part = () => {}) => begin(what, given, part, false).end;

// Parts as they come, for as long as anybody wants; taken up again after the lab was away.
export function follow(what, given, part, failed = () => {}) {
  const { end, stop } = begin(what, given, part, true);
  end.catch(failed);
  return stop;
}

// Asks of which only the newest matters: a slider asks often, and old answers are not waited for.
export function channel() {
  let stop = () => {};
  const latest = (what, given = {}, part = () => {}) => {
    stop();
    const begun = begin(what, given, part, false);
    stop = begun.stop;
    return begun.end;
  };
  latest.stop = () => stop();
  return latest;
}

// 32-bit floats, as arrays.py packs them: { shape, values }, with at(i, j, …)
export function unpacked({ shape, f32 }) {
  const bytes = Uint8Array.from(atob(f32), (c) => c.charCodeAt(0));
  const values = new Float32Array(bytes.buffer);
  const strides = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
  return { shape, values, at: (...place) => values[place.reduce((sum, i, d) => sum + i * strides[d], 0)] };
}

connect();
