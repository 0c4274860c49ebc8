#include "lockstep/datasets/files/internal/zip_archive.h"

#include <filesystem>
#include <set>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/images/internal/class_folder.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::fuzz {
namespace {

constexpr ZipLimits kLimits{.max_entry_bytes = 1 << 16};

void expect_inside(const std::string& name) {
  const std::filesystem::path path(name);
  expect(!name.empty() && path.is_relative(), "a relative name");
  for (const auto& part : path) expect(part != ".." && part != ".", "a name inside the archive's folder");
}

/// The entries that can be read, unchanged.
std::vector<testing::RawZipEntry> read_entries(const std::string& path,
                                               const std::vector<ZipEntry>& entries) {
  std::vector<testing::RawZipEntry> read;
  ZipReader reader(path);
  for (const auto& entry : entries) {
    const auto content = accepted<DataError>([&] { return reader.read(entry); });
    if (!content) continue;
    expect(content->size() == entry.size, "as many bytes as the directory says");
    read.push_back(testing::stored_entry(entry.name, *content));
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile file(std::span(data, size));
  const auto entries = accepted<DataError>([&] { return list_zip(file.path(), kLimits); });
  accepted<DataError>([&] { return list_class_folder(file.path()); });
  if (!entries) return 0;
  std::set<std::string> names;
  for (const auto& entry : *entries) {
    expect_inside(entry.name);
    expect(names.insert(entry.name).second, "every name once");
    expect(entry.size <= kLimits.max_entry_bytes, "a size within the limit");
  }
  const auto read = read_entries(file.path(), *entries);
  const MemoryFile plain(testing::make_raw_zip(read));
  const auto again = list_zip(plain.path(), kLimits);
  expect(again.size() == read.size(), "the same entries out of what was written of them");
  ZipReader reader(plain.path());
  for (size_t i = 0; i < read.size(); ++i)
    expect(again[i].name == read[i].name && reader.read(again[i]) == read[i].content, "the same content");
  return 0;
}

}  // namespace lockstep::fuzz
