#include "lockstep/training/checkpoints/checkpoint_state.h"

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"

namespace lockstep {
namespace {

/// Returns the manifest's files that hold the state, in the order of the shards. Other files are ignored.
std::vector<std::string> state_files(const CheckpointManifest& manifest, const std::string& source) {
  std::vector<std::string> names;
  const auto is_there = [&](const std::string& name) {
    return std::any_of(manifest.files.begin(), manifest.files.end(),
                       [&](const auto& file) { return file.name == name; });
  };
  while (is_there(shard_file_name(static_cast<int>(names.size()))))
    names.push_back(shard_file_name(static_cast<int>(names.size())));
  if (names.empty()) throw CheckpointError(source, "files", shard_file_name(0), "others");
  return names;
}

/// Returns the part without its mark. Throws CheckpointError unless it is the expected part.
StateValue::Dict without_mark(StateValue::Dict part, const StateShard& expected, const std::string& path) {
  const auto name_of = [](int64_t index, int64_t count) {
    return "part " + std::to_string(index) + " of " + std::to_string(count);
  };
  const std::string wanted = name_of(expected.index, expected.count);
  const StateValue* mark = part.find(kShardKey);
  if (mark == nullptr) {
    if (expected.count > 1) throw CheckpointError(path, "['shard']", wanted, "a whole state");
    return part;
  }
  const StateView shard(*mark, path, "['shard']");
  const std::string actual = name_of(shard.at("index").integer(), shard.at("count").integer());
  if (actual != wanted) throw CheckpointError(path, "['shard']", wanted, actual);
  std::erase_if(part.entries, [](const auto& entry) { return entry.key == StateValue::Key(kShardKey); });
  return part;
}

}  // namespace

std::vector<CheckpointContent> read_checkpoint(const std::string& folder) {
  const CheckpointManifest manifest = read_manifest(folder);
  std::vector<CheckpointContent> files;
  for (const auto& name : state_files(manifest, folder + "/manifest.json")) {
    const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [&](const auto& candidate) { return candidate.name == name; });
    files.push_back({.path = folder + "/" + name, .bytes = read_checkpoint_file(folder, *file)});
  }
  return files;
}

StateValue parse_checkpoint(const std::vector<CheckpointContent>& files) {
  StateValue::Dict state;
  for (size_t index = 0; index < files.size(); ++index) {
    const auto& [path, bytes] = files[index];
    const StateValue part = read_state_archive(InputFile(path, bytes));
    const auto* dict = part.get_if<StateValue::Dict>();
    if (dict == nullptr) throw CheckpointError(path, "state", "a dict", "another value");
    state = merge_shards(
        state, without_mark(*dict, {static_cast<int>(index), static_cast<int>(files.size())}, path), path);
  }
  return state;
}

StateValue load_checkpoint(const std::string& folder) {
  return parse_checkpoint(read_checkpoint(folder));
}

}  // namespace lockstep
