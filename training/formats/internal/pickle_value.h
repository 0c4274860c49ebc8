#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/training/formats/nested_value.h"

// Python's pickles describe a tensor without its bytes, which are in a separate record.

namespace lockstep {

struct PickledTensor {
  std::string dtype;           ///< Python's name, such as float32
  std::string storage;         ///< name of the record with the bytes
  uint64_t storage_bytes = 0;  ///< size of that record
  int64_t offset = 0;          ///< position of the first element, in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements
};

using PickleValue = NestedValue<PickledTensor>;

/// Maximum nesting depth of values.
constexpr size_t kMaxNesting = 64;

/// Limit on the values in a pickle, including those of which tensors are made. A tensor with its optimizer's
/// state takes about a hundred.
constexpr size_t kMaxPickledValues = size_t{1} << 21;

/// How a dtype is pickled.
struct PickledDtype {
  std::string_view name;
  std::string_view storage;  ///< storage class in module torch; empty for newer dtypes
  uint64_t element_size;
};

/// Finds a dtype by its name in Python. Returns null if LibTorch lacks it.
const PickledDtype* find_pickled_dtype(std::string_view name);
/// Finds a dtype by its storage class.
const PickledDtype* find_pickled_storage(std::string_view storage);

}  // namespace lockstep
