"""An ONNX file as something to call."""

import torch


def open_onnx(path):
    """Return a function of named tensors that runs the file in one thread, and its metadata."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(**inputs):
        assert [one.name for one in session.get_inputs()] == list(inputs)
        results = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        named = zip([one.name for one in session.get_outputs()], results, strict=True)
        return {name: torch.from_numpy(result) for name, result in named}

    return run, session.get_modelmeta().custom_metadata_map


def shake(model):
    """Move all parameters and running statistics away from zero and one."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    for name, statistics in model.named_buffers():
        if "running" in name:
            statistics.add_(torch.rand_like(statistics) * 0.2)
    return model.eval()
