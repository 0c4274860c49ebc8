#include "lockstep/training/formats/internal/pickle_value.h"

#include <array>

namespace lockstep {
namespace {

constexpr std::array<PickledDtype, 20> kPickledDtypes{{
    {"float32", "FloatStorage", 4},
    {"float64", "DoubleStorage", 8},
    {"float16", "HalfStorage", 2},
    {"bfloat16", "BFloat16Storage", 2},
    {"uint8", "ByteStorage", 1},
    {"int8", "CharStorage", 1},
    {"int16", "ShortStorage", 2},
    {"int32", "IntStorage", 4},
    {"int64", "LongStorage", 8},
    {"bool", "BoolStorage", 1},
    {"complex64", "ComplexFloatStorage", 8},
    {"complex128", "ComplexDoubleStorage", 16},
    {"uint16", "", 2},
    {"uint32", "", 4},
    {"uint64", "", 8},
    {"float8_e4m3fn", "", 1},
    {"float8_e4m3fnuz", "", 1},
    {"float8_e5m2", "", 1},
    {"float8_e5m2fnuz", "", 1},
    {"float8_e8m0fnu", "", 1},
}};

}  // namespace

const PickledDtype* find_pickled_dtype(std::string_view name) {
  for (const auto& dtype : kPickledDtypes)
    if (dtype.name == name) return &dtype;
  return nullptr;
}

const PickledDtype* find_pickled_storage(std::string_view storage) {
  for (const auto& dtype : kPickledDtypes)
    if (!storage.empty() && dtype.storage == storage) return &dtype;
  return nullptr;
}

}  // namespace lockstep
