#include "lockstep/datasets/images/internal/idx_file.h"

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr uint64_t kMaxBytes = 1 << 16;

std::vector<uint8_t> written(const IdxArray& array) {
  std::vector<uint8_t> bytes = {0, 0, 8, static_cast<uint8_t>(array.dimensions.size())};
  for (const int64_t dimension : array.dimensions)
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(dimension >> shift));
  bytes.insert(bytes.end(), array.values.begin(), array.values.end());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(data, size);
  const MemoryFile file(bytes);
  for (const int64_t num_dimensions : {1, 3}) {
    const IdxOptions options{.num_dimensions = num_dimensions, .max_bytes = kMaxBytes};
    const PeakMemory memory;
    const auto array = accepted<DataError>([&] { return read_idx(file.path(), options); });
    // The base includes zlib's window.
    memory.expect_at_most(2, size, 2 * kMaxBytes);
    if (!array) continue;
    expect(array->dimensions.size() == static_cast<size_t>(num_dimensions),
           "as many dimensions as asked for");
    uint64_t count = 1;
    for (const int64_t dimension : array->dimensions) count *= static_cast<uint64_t>(dimension);
    expect(count == array->values.size(), "as many values as the dimensions say");
    const auto plain = written(*array);
    const bool is_gzip = data[0] != 0;
    if (!is_gzip)
      expect(std::equal(plain.begin(), plain.end(), bytes.begin(), bytes.end()), "the file again");
    if (plain.size() > kMaxBytes) continue;
    const auto again = read_idx(MemoryFile(plain).path(), options);
    expect(again.dimensions == array->dimensions && again.values == array->values,
           "the same array out of what was written of it");
  }
  return 0;
}

}  // namespace lockstep::fuzz
