#include "lockstep/runtime/base/files/internal/zip_directory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory_file(std::span(data, size));
  const InputFile file(memory_file.path());
  const PeakMemory memory;
  const auto records = accepted<CheckpointError>([&] { return read_zip_directory(file); }, expect_plain_line);
  memory.expect_at_most(20, size, 10'000);
  if (!records) return 0;

  std::vector<std::pair<uint64_t, uint64_t>> places;
  std::vector<testing::RawZipEntry> entries;
  for (const auto& [name, record] : *records) {
    expect(record.begin <= size && record.size <= size - record.begin, "a record within the file");
    places.emplace_back(record.begin, record.begin + record.size);
    entries.push_back({.name = name,
                       .content = {data + record.begin, data + record.begin + record.size},
                       .size = record.size,
                       .checksum = record.crc32,
                       .is_deflated = !record.is_plain});
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i)
    expect(places[i - 1].second <= places[i].first, "records that do not overlap");

  const auto plain = testing::make_raw_zip(entries);
  const MemoryFile plain_file(plain);
  const auto again = read_zip_directory(InputFile(plain_file.path()));
  expect(again.size() == records->size(), "the same records out of what was written of them");
  for (const auto& entry : entries) {
    const auto& record = again.at(entry.name);
    const std::span content(plain.data() + record.begin, record.size);
    expect(record.crc32 == entry.checksum && record.is_plain == !entry.is_deflated &&
               std::equal(content.begin(), content.end(), entry.content.begin(), entry.content.end()),
           "the same record");
  }
  return 0;
}

}  // namespace lockstep::fuzz
