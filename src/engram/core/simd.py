"""SIMD vectors inside compiled kernels: values of 16 lanes that stay in registers.

    total = ints(0)
    total = dot4(total, low_nibbles(load_bytes(address)), four)        # 16 × 4 products of 8 bits

numba vectorizes plain loops, but not sums of products of 8-bit numbers, which a processor with VNNI adds up by 64 in
one instruction; other processors take some more, with the same result. Memory is named by address.
"""

from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
import numba.extending
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models, register_default  # type: ignore[attr-defined]

LANES, BYTES = 16, 64
"""lanes of 32 bits, and the bytes that fill as much"""
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
VNNI = bool(llvmlite.binding.get_host_cpu_features().get("avx512vnni"))
"""whether the processor multiplies and adds 64 numbers of 8 bits in one instruction"""
Lower = Callable[[Any, Any, Any, Any], Any]
carray: Any = numba.carray  # type: ignore[attr-defined]
"""an array in memory, from its pointer, shape and type"""


def intrinsic(function: Callable[..., tuple[Any, Lower]]) -> Any:
    """Decorator: a function of compiled code, from its type and the instructions that it is."""
    return numba.extending.intrinsic(function)


class VectorType(types.Type):
    """Type of a vector in numba."""

    def __init__(self, name: str, element: ir.Type, lanes: int) -> None:
        super().__init__(name)
        self.llvm = ir.VectorType(element, lanes)

    def constant(self, values: list[int]) -> ir.Constant:
        """Return a constant vector."""
        return ir.Constant(self.llvm, values)


@register_default(VectorType)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """A vector is held as one value of LLVM."""

    def __init__(self, dmm: Any, fe_type: VectorType) -> None:
        super().__init__(dmm, fe_type, fe_type.llvm)


byte_vector = VectorType("Bytes", I8, BYTES)
int_vector = VectorType("Ints", I32, LANES)
float_vector = VectorType("Floats", F32, LANES)
half_lanes = ir.VectorType(F16, LANES)


def _load(builder: Any, address: Any, kind: ir.Type) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _splat(builder: Any, value: Any) -> Any:
    """Return a vector whose lanes all are `value`."""
    kind, lanes = ir.VectorType(value.type, LANES), ir.VectorType(I32, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(lanes, [0] * LANES))


@intrinsic
def load_bytes(typing: Any, address: Any) -> tuple[Any, Lower]:
    """Load 64 bytes."""
    return byte_vector(types.int64), lambda context, builder, signature, args: _load(builder, args[0], byte_vector.llvm)


@intrinsic
def load_floats(typing: Any, address: Any) -> tuple[Any, Lower]:
    """Load 16 numbers of 32 bits."""
    return float_vector(types.int64), lambda context, builder, signature, args: _load(
        builder, args[0], float_vector.llvm
    )


@intrinsic
def load_halves(typing: Any, address: Any) -> tuple[Any, Lower]:
    """Load 16 numbers of 16 bits, as those of 32."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(_load(builder, args[0], half_lanes), float_vector.llvm)

    return float_vector(types.int64), lower


@intrinsic
def load_four(typing: Any, address: Any) -> tuple[Any, Lower]:
    """Load four bytes as one integer."""
    return types.int32(types.int64), lambda context, builder, signature, args: _load(builder, args[0], I32)


@intrinsic
def store_floats(typing: Any, address: Any, vector: Any) -> tuple[Any, Lower]:
    """Store 16 numbers of 32 bits."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], float_vector.llvm.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, float_vector), lower


@intrinsic
def half_to_float(typing: Any, bits: Any) -> tuple[Any, Lower]:
    """Return the number whose 16 bits an integer has."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fpext(builder.bitcast(args[0], F16), F32)

    return types.float32(types.int16), lower


@intrinsic
def float_to_half(typing: Any, value: Any) -> tuple[Any, Lower]:
    """Return the 16 bits of a number, rounded, as an integer."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.fptrunc(args[0], F16), I16)

    return types.int16(types.float32), lower


@intrinsic
def bits_to_float(typing: Any, bits: Any) -> tuple[Any, Lower]:
    """Return the number whose 32 bits an integer has."""
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(args[0], F32)


@intrinsic
def ints(typing: Any, value: Any) -> tuple[Any, Lower]:
    """Return 16 times the same integer."""
    return int_vector(types.int32), lambda context, builder, signature, args: _splat(builder, args[0])


@intrinsic
def floats(typing: Any, value: Any) -> tuple[Any, Lower]:
    """Return 16 times the same number."""
    return float_vector(types.float32), lambda context, builder, signature, args: _splat(builder, args[0])


@intrinsic
def to_floats(typing: Any, integers: Any) -> tuple[Any, Lower]:
    """Convert integers to numbers of 32 bits."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sitofp(args[0], float_vector.llvm)

    return float_vector(int_vector), lower


@intrinsic
def low_nibbles(typing: Any, packed: Any) -> tuple[Any, Lower]:
    """Return the lower four bits of each byte."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.and_(args[0], byte_vector.constant([15] * BYTES))

    return byte_vector(byte_vector), lower


@intrinsic
def high_nibbles(typing: Any, packed: Any) -> tuple[Any, Lower]:
    """Return the upper four bits of each byte."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.lshr(args[0], byte_vector.constant([4] * BYTES))

    return byte_vector(byte_vector), lower


@intrinsic
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> tuple[Any, Lower]:
    """Return a b + c, rounded once."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_function(builder, "llvm.fma.v16f32", float_vector.llvm), args)

    return float_vector(float_vector, float_vector, float_vector), lower


@intrinsic
def multiply(typing: Any, a: Any, b: Any) -> tuple[Any, Lower]:
    """Return a b."""
    return float_vector(float_vector, float_vector), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def dot4(typing: Any, total: Any, unsigned: Any, four: Any) -> tuple[Any, Lower]:
    """Add to each lane of `total` the dot product of four bytes, 0 to 255, with `four`, -128 to 127."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, unsigned, four = args
        signed = _splat(builder, four)
        if VNNI:
            dpbusd = _function(builder, "llvm.x86.avx512.vpdpbusd.512", int_vector.llvm)
            return builder.call(dpbusd, [total, builder.bitcast(unsigned, int_vector.llvm), signed])
        signed = builder.bitcast(signed, byte_vector.llvm)
        for place in range(4):
            every_fourth = int_vector.constant([4 * lane + place for lane in range(LANES)])
            a = builder.zext(builder.shuffle_vector(unsigned, unsigned, every_fourth), int_vector.llvm)
            b = builder.sext(builder.shuffle_vector(signed, signed, every_fourth), int_vector.llvm)
            total = builder.add(total, builder.mul(a, b))
        return total

    return int_vector(int_vector, byte_vector, types.int32), lower


def _function(builder: Any, name: str, kind: ir.Type) -> Any:
    """Declare a function of LLVM that takes three vectors and returns one of the same kind."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)


@intrinsic
def pointer(typing: Any, address: Any) -> tuple[Any, Lower]:
    """Return an address as the pointer that `carray` takes."""

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], I8.as_pointer())

    return types.voidptr(types.int64), lower
