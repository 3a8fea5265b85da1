"""Arrays, images and figures as JSON for the pages of the lab."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go


def pack_array(values: Any) -> dict[str, Any]:
    """Encode an array or tensor as 32-bit floats; `decodeArray` of socket.js reads it."""
    array = np.asarray(values, dtype="<f4")
    return {"shape": list(array.shape), "f32": base64.b64encode(array.tobytes()).decode()}


def data_url(png: bytes) -> str:
    """Return a PNG as the URL of an <img>."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def plotly_json(figure: go.Figure) -> dict[str, Any]:
    """Return data and layout of a figure, as plotly.js takes them."""
    content: dict[str, Any] = json.loads(figure.to_json())
    return {"data": content["data"], "layout": content["layout"]}
