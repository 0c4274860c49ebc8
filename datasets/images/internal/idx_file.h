#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// An array out of an IDX file, the format of MNIST: `values` holds the product of `dimensions`, the last
/// dimension running fastest.
struct IdxArray {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> values;
};

struct IdxOptions {
  int64_t num_dimensions = 1;              ///< what the file must have: 3 for images, 1 for labels
  uint64_t max_bytes = uint64_t{4} << 30;  ///< limit on the array and on the file
};

/// Reads an IDX file of unsigned bytes, plain or compressed with gzip (told apart by the first bytes; a name
/// ending with .gz must hold gzip). Throws DataError naming field, expected and actual value for a wrong
/// magic number, value type or number of dimensions, dimensions whose product overflows or passes
/// `max_bytes`, a count that does not match the file's size in either direction, and damaged gzip. The array
/// is allocated only after its size was checked against the file's.
IdxArray read_idx(const std::string& path, const IdxOptions& options);

}  // namespace lockstep
