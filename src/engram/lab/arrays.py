"""Numbers and pictures on their way to a page."""

import base64
import json
from typing import Any

import numpy as np
import plotly.graph_objects as go


def packed(values: Any) -> dict[str, Any]:
    """An array or tensor as 32-bit floats; the page unpacks it with `unpacked` of link.js."""
    array = np.asarray(values, dtype="<f4")
    return {"shape": list(array.shape), "f32": base64.b64encode(array.tobytes()).decode()}


def picture(png: bytes) -> str:
    """A picture as an address that an <img> takes."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def plot(figure: go.Figure) -> dict[str, Any]:
    """Data and layout of a figure, as plotly.js takes them."""
    drawn: dict[str, Any] = json.loads(figure.to_json())
    return {"data": drawn["data"], "layout": drawn["layout"]}
