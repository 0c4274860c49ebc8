#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// An array from an IDX file, the format of MNIST. `values` is in row-major order and has as many elements as
/// the product of `dimensions`.
struct IdxArray {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> values;
};

struct IdxOptions {
  int64_t num_dimensions = 1;              ///< required number: 3 for images, 1 for labels
  uint64_t max_bytes = uint64_t{4} << 30;  ///< limit for the array and for the file
};

/// Reads an IDX file of unsigned bytes, plain or compressed with gzip. Detects gzip by the first bytes; a
/// file whose name ends with .gz must be gzip. Throws DataError naming field, expected and actual value for a
/// wrong magic number, value type or number of dimensions; for dimensions whose product overflows or exceeds
/// `max_bytes`; for a count that does not match the file's size exactly; and for damaged gzip data. Checks
/// the array's size against the file's before it allocates memory.
IdxArray read_idx(const std::string& path, const IdxOptions& options);

}  // namespace lockstep
