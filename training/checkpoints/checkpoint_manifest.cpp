#include "lockstep/training/checkpoints/checkpoint_manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/runtime/base/internal/bounded_json.h"

namespace lockstep {
namespace {

/// Format of checkpoints of several files, each with a part of the state; those of a single file have format
/// 1.
constexpr int64_t kManifestFormat = 2;
// Limit for one file; sums of sizes up to it do not overflow.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;
constexpr size_t kDigestDigits = 64;
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

std::string read_whole(const std::string& path, uint64_t most) {
  const InputFile file(path);
  if (file.size() > most) {
    throw CheckpointError(path, "file size", "at most " + std::to_string(most) + " bytes",
                          std::to_string(file.size()));
  }
  std::string text(file.size(), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

/// Returns whether the name stays within the folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

/// Reads text whose checksum was right, so any error in it was written that way.
class ManifestReader {
 public:
  explicit ManifestReader(std::string path) : path_(std::move(path)) {}

  CheckpointManifest read(const std::string& text) const {
    const auto json = parse(text);
    const int64_t format = count(json, "format");
    if (format > kManifestFormat) {
      throw CheckpointUnreadable(path_, "format", "at most " + std::to_string(kManifestFormat),
                                 std::to_string(format));
    }
    CheckpointManifest manifest{.step = count(json, "step"),
                                .epoch = count(json, "epoch"),
                                .generation = count(json, "generation"),
                                .is_best = at(json, "best", "true or false", &nlohmann::json::is_boolean),
                                .version = text_at(json, "version"),
                                .files = {}};
    for (const auto& file : at(json, "files", "a list", &nlohmann::json::is_array))
      manifest.files.push_back(read_file(file));
    return manifest;
  }

 private:
  using Check = bool (nlohmann::json::*)() const;

  nlohmann::json parse(const std::string& text) const {
    try {
      return parse_bounded_json(text, {.source = path_, .max_bytes = kMaxManifestBytes});
    } catch (const InvalidArgument& error) {
      throw CheckpointError(error.what());
    }
  }

  const nlohmann::json& at(const nlohmann::json& object, const char* key, const char* expected,
                           Check is_right) const {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) throw CheckpointError(path_, key, expected, "nothing");
    if (!((*found).*is_right)()) throw CheckpointError(path_, key, expected, "something else");
    return *found;
  }

  int64_t count(const nlohmann::json& object, const char* key) const {
    const auto& value = at(object, key, "a count", &nlohmann::json::is_number_integer);
    const bool fits = !value.is_number_unsigned() ||
                      value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!fits || value.get<int64_t>() < 0) throw CheckpointError(path_, key, "a count", value.dump());
    return value.get<int64_t>();
  }

  std::string text_at(const nlohmann::json& object, const char* key) const {
    return at(object, key, "a text", &nlohmann::json::is_string).get<std::string>();
  }

  CheckpointFile read_file(const nlohmann::json& json) const {
    CheckpointFile file{.name = text_at(json, "name"), .parts = {}};
    if (!is_plain_name(file.name)) throw CheckpointError(path_, "name", "a name in the folder", "a path");
    uint64_t size = 0;
    for (const auto& part : at(json, "parts", "a list", &nlohmann::json::is_array)) {
      file.parts.push_back({.name = text_at(part, "name"),
                            .size = static_cast<uint64_t>(count(part, "bytes")),
                            .sha256 = text_at(part, "sha256")});
      size += file.parts.back().size;
      if (size > kMaxFileBytes)
        throw CheckpointError(path_, "parts", "sizes of a file", "more than any file has");
    }
    return file;
  }

  std::string path_;
};

void check_file_size(const InputFile& input, const CheckpointFile& file) {
  if (input.size() == file.size()) return;
  throw CheckpointError(input.path(), "file size", std::to_string(file.size()) + " bytes",
                        std::to_string(input.size()));
}

void check_part_sum(const InputFile& input, const CheckpointPart& part, const std::string& sum) {
  if (sum == part.sha256) return;
  throw CheckpointError(input.path(), part.name, "bytes with their checksum", "others: the file is damaged");
}

}  // namespace

uint64_t CheckpointFile::size() const {
  uint64_t sum = 0;
  for (const auto& part : parts) sum += part.size;
  return sum;
}

std::string manifest_text(const CheckpointManifest& manifest) {
  nlohmann::ordered_json json{{"format", manifest.files.size() > 1 ? kManifestFormat : 1},
                              {"version", manifest.version},
                              {"step", manifest.step},
                              {"epoch", manifest.epoch},
                              {"generation", manifest.generation},
                              {"best", manifest.is_best}};
  auto& files = json["files"] = nlohmann::ordered_json::array();
  for (const auto& file : manifest.files) {
    auto parts = nlohmann::ordered_json::array();
    for (const auto& part : file.parts)
      parts.push_back({{"name", part.name}, {"bytes", part.size}, {"sha256", part.sha256}});
    files.push_back({{"name", file.name}, {"parts", std::move(parts)}});
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

CheckpointManifest parse_manifest(const std::string& text, const std::string& source) {
  return ManifestReader(source).read(text);
}

CheckpointManifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  const std::string text = read_whole(path, kMaxManifestBytes);
  const std::string sum_path = folder + "/manifest.sha256";
  const std::string sum = read_whole(sum_path, kDigestDigits + 32);
  if (sum != sha256(text) + "  manifest.json\n")
    throw CheckpointError(path, "manifest", "the checksum in manifest.sha256",
                          "another: one of them is damaged");
  return parse_manifest(text, path);
}

std::string read_checkpoint_file(const std::string& folder, const CheckpointFile& file) {
  const InputFile input(folder + "/" + file.name);
  check_file_size(input, file);
  std::string bytes(input.size(), '\0');
  input.read(0, bytes.data(), bytes.size());
  size_t begin = 0;
  for (const auto& part : file.parts) {
    check_part_sum(input, part, sha256(std::string_view(bytes).substr(begin, part.size)));
    begin += part.size;
  }
  return bytes;
}

void check_checkpoint_file(const std::string& folder, const CheckpointFile& file) {
  const InputFile input(folder + "/" + file.name);
  check_file_size(input, file);
  std::string piece(std::min<uint64_t>(input.size(), kPieceBytes), '\0');
  Sha256 hash;
  uint64_t begin = 0;
  for (const auto& part : file.parts) {
    for (uint64_t end = begin + part.size; begin < end;) {
      const size_t count = std::min<uint64_t>(piece.size(), end - begin);
      input.read(begin, piece.data(), count);
      hash.update(piece.data(), count);
      begin += count;
    }
    check_part_sum(input, part, hash.finish());
  }
}

}  // namespace lockstep
