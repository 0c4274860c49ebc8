#include "lockstep/training/formats/internal/safetensors_header.h"

#include <algorithm>
#include <tuple>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/training/formats/internal/tensor_size.h"

// The input is two bytes with the number of bytes after the header, then the header's JSON. It leaves out the
// JSON's length, because most changes would be rejected there.

namespace lockstep::fuzz {
namespace {

std::vector<SafetensorsEntry> by_name(std::vector<SafetensorsEntry> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return tensors;
}

bool is_same(const SafetensorsHeader& one, const SafetensorsHeader& other) {
  // Tensors without bytes may swap places.
  const auto first = by_name(one.tensors);
  const auto second = by_name(other.tensors);
  const auto fields = [](const SafetensorsEntry& entry) {
    return std::tie(entry.name, entry.dtype, entry.shape, entry.begin, entry.end);
  };
  return one.metadata == other.metadata &&
         std::equal(first.begin(), first.end(), second.begin(), second.end(),
                    [&](const auto& a, const auto& b) { return fields(a) == fields(b); });
}

SafetensorsHeader read_file(const std::string& bytes, uint64_t data_size) {
  const auto length = read_safetensors_length(reinterpret_cast<const unsigned char*>(bytes.data()),
                                              bytes.size() + data_size, "fuzz");
  expect(length == bytes.size() - kSafetensorsLengthBytes && length % kSafetensorsLengthBytes == 0,
         "the header's length, a multiple of eight");
  return parse_safetensors_header(std::string_view(bytes).substr(kSafetensorsLengthBytes), data_size, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size >= kSafetensorsLengthBytes) {
    const auto length = accepted<CheckpointError>([&] { return read_safetensors_length(data, size, "fuzz"); },
                                                  expect_plain_line);
    if (length) expect(*length <= size - kSafetensorsLengthBytes, "a header within the file");
  }
  if (size < 2) return 0;
  const uint64_t data_size = data[0] | data[1] << 8;
  const PeakMemory memory;
  const auto header = accepted<CheckpointError>(
      [&] { return parse_safetensors_header(text_of(data + 2, size - 2), data_size, "fuzz"); },
      expect_plain_line);
  memory.expect_at_most(50, size, 10'000);
  if (!header) return 0;

  uint64_t next = 0;
  for (const auto& tensor : header->tensors) {
    const auto bytes = checked_tensor_bytes(tensor.shape, safetensors_element_size(tensor.dtype).value());
    expect(tensor.begin == next && bytes && *bytes == tensor.end - tensor.begin, "tensors without a gap");
    next = tensor.end;
  }
  expect(next == data_size, "tensors that fill the file");
  expect(is_same(read_file(write_safetensors_header(*header), data_size), *header),
         "the same header out of what was written of it");
  const auto placed = place_safetensors(header->tensors, header->metadata);
  expect(is_same(read_file(write_safetensors_header(placed), data_size), placed), "tensors placed again");
  return 0;
}

}  // namespace lockstep::fuzz
