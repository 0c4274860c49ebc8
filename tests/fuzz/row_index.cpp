#include "lockstep/datasets/clicks/internal/row_index.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

// Offsets in a header: the version of its file, and its two checksums, each in 8 bytes.
constexpr size_t kSource = 16;
constexpr size_t kBodyChecksum = 72;
constexpr size_t kHeaderChecksum = 88;
constexpr size_t kHeaderBytes = 96;

void put_checksum(std::string& bytes, size_t at, size_t from, size_t size) {
  const uint64_t checksum = crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data() + from), size);
  std::memcpy(bytes.data() + at, &checksum, sizeof(checksum));
}

/// Reads everywhere that a dataset would.
void look_at(const RowIndex& index) {
  const uint64_t rows = index.num_rows();
  for (const uint64_t row : {uint64_t{0}, uint64_t{1}, rows / 2, rows - 1}) {
    if (row >= rows) continue;
    index.offset(row);
    for (const uint64_t count : {uint64_t{1}, rows - row}) {
      const auto range = index.range(row, count);
      expect(!range || (range->begin < range->end && range->end <= index.facts().rows.size),
             "a part within the file");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As random bytes hardly ever have their checksums, these are made right.
  std::string bytes(text_of(data, size));
  if (size >= kHeaderBytes) {
    put_checksum(bytes, kBodyChecksum, kHeaderBytes, size - kHeaderBytes);
    put_checksum(bytes, kHeaderChecksum, 0, kHeaderChecksum);
  }
  // Not a byte longer than the index, so that reading beyond it is noticed.
  const auto exact = std::make_unique<char[]>(size);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  FileVersion source;
  if (size >= kSource + sizeof(source)) std::memcpy(&source, exact.get() + kSource, sizeof(source));
  const PeakMemory memory;
  const auto index = RowIndex::parse({exact.get(), size}, source);
  memory.expect_at_most(2, size, 1000);
  if (!index) return 0;
  look_at(*index);

  // An index that was read can be written, and read again.
  std::string again;
  bool is_ordered = true;
  for (uint64_t row = 1; row < index->num_rows(); ++row)
    is_ordered = is_ordered && index->offset(row) > index->offset(row - 1);
  if (!is_ordered || index->num_rows() == 0 || index->offset(index->num_rows() - 1) > UINT32_MAX) return 0;
  RowIndexWriter writer([&](std::string_view piece) { again += piece; });
  for (uint64_t row = 0; row < index->num_rows(); ++row) writer.add(index->offset(row), "file");
  const std::string header = writer.finish(index->facts());
  again.replace(0, header.size(), header);
  const auto copy = RowIndex::parse(again, source);
  expect(copy && copy->num_rows() == index->num_rows() && copy->facts() == index->facts(),
         "the same index out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
