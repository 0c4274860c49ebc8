#pragma once

#include <torch/types.h>

#include <array>
#include <utility>

namespace lockstep {

/// Dtypes of tensors in state files, by their names in Python.
inline constexpr std::array<std::pair<const char*, torch::ScalarType>, 20> kDtypesByName{{
    {"float32", torch::kFloat32},
    {"float64", torch::kFloat64},
    {"float16", torch::kFloat16},
    {"bfloat16", torch::kBFloat16},
    {"uint8", torch::kUInt8},
    {"int8", torch::kInt8},
    {"int16", torch::kInt16},
    {"int32", torch::kInt32},
    {"int64", torch::kInt64},
    {"bool", torch::kBool},
    {"complex64", torch::kComplexFloat},
    {"complex128", torch::kComplexDouble},
    {"uint16", torch::kUInt16},
    {"uint32", torch::kUInt32},
    {"uint64", torch::kUInt64},
    {"float8_e4m3fn", torch::kFloat8_e4m3fn},
    {"float8_e4m3fnuz", torch::kFloat8_e4m3fnuz},
    {"float8_e5m2", torch::kFloat8_e5m2},
    {"float8_e5m2fnuz", torch::kFloat8_e5m2fnuz},
    {"float8_e8m0fnu", torch::kFloat8_e8m0fnu},
}};

/// Byte order of the tensors in state files.
inline constexpr const char* kStateByteOrder = "little";

}  // namespace lockstep
