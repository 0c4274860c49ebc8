#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/training/formats/nested_value.h"

// What Python's pickles say of a tensor: all but its bytes, which lie in a record of their own.

namespace lockstep {

struct PickledTensor {
  std::string dtype;           ///< in Python's words, such as float32
  std::string storage;         ///< the name of the record with the bytes
  uint64_t storage_bytes = 0;  ///< of that record
  int64_t offset = 0;          ///< of the first element, in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements
};

using PickleValue = NestedValue<PickledTensor>;

/// Values inside each other.
constexpr size_t kMaxNesting = 64;

/// How a dtype is pickled.
struct PickledDtype {
  std::string_view name;
  std::string_view storage;  ///< the storage class in module torch; none for the dtypes that came later
  uint64_t element_size;
};

/// By its name in Python; null for one that LibTorch lacks.
const PickledDtype* find_pickled_dtype(std::string_view name);
/// By its storage class.
const PickledDtype* find_pickled_storage(std::string_view storage);

}  // namespace lockstep
