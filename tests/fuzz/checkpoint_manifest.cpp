#include "lockstep/training/checkpoints/checkpoint_manifest.h"

#include <fstream>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::fuzz {
namespace {

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Reads a folder whose manifest.json is `text`, with a correct checksum.
CheckpointManifest read_text(const std::string& folder, std::string_view text) {
  write_file(folder + "/manifest.json", text);
  write_file(folder + "/manifest.sha256", sha256(text) + "  manifest.json\n");
  return read_manifest(folder);
}

}  // namespace

/// Fuzzes what comes after the checksum, which would reject most changes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TemporaryFolder folder;
  const auto manifest = accepted<CheckpointError>(
      [&] { return read_text(folder.path(), text_of(data, size)); }, expect_plain_line);
  if (!manifest) return 0;
  for (const auto& file : manifest->files)
    expect(file.name.find('/') == std::string::npos && file.name != "..", "names of files in the folder");
  const auto again = read_text(folder.path(), manifest_text(*manifest));
  expect(again == *manifest, "the same manifest out of what was written of it");
  // The file is missing or differs from the manifest.
  for (const auto& file : manifest->files)
    accepted<CheckpointError>([&] { return read_checkpoint_file(folder.path(), file); }, expect_plain_line);
  return 0;
}

}  // namespace lockstep::fuzz
