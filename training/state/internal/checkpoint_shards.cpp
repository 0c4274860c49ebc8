#include "lockstep/training/state/internal/checkpoint_shards.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/training/formats/state_view.h"

namespace lockstep {
namespace {

/// Returns the bytes of the tensors that are reachable through dicts alone.
uint64_t bytes_in_dicts(const StateValue::Dict& state) {
  uint64_t sum = 0;
  for (const auto& [key, value] : state.entries) {
    if (const auto* tensor = value.get_if<torch::Tensor>()) sum += tensor->nbytes();
    if (const auto* dict = value.get_if<StateValue::Dict>()) sum += bytes_in_dicts(*dict);
  }
  return sum;
}

/// Takes one shard out of a state, tensor by tensor.
class ShardCutter {
 public:
  ShardCutter(const StateShard& shard, uint64_t bytes) : shard_(shard), bytes_(bytes) {}

  StateValue::Dict cut(const StateValue::Dict& state) {
    StateValue::Dict kept;
    for (const auto& [key, value] : state.entries) {
      if (const auto* tensor = value.get_if<torch::Tensor>()) {
        if (shard_of_next(tensor->nbytes()) == shard_.index) kept.add(key, value);
      } else if (const auto* dict = value.get_if<StateValue::Dict>()) {
        StateValue::Dict inner = cut(*dict);
        if (shard_.index == 0 || !inner.entries.empty()) kept.add(key, std::move(inner));
      } else if (shard_.index == 0) {
        kept.add(key, value);
      }
    }
    return kept;
  }

 private:
  /// Chooses the shard by the position of the tensor's middle among all bytes.
  int shard_of_next(uint64_t size) {
    const double middle = static_cast<double>(done_) + static_cast<double>(size) / 2;
    done_ += size;
    if (bytes_ == 0) return 0;
    const auto index = static_cast<int>(middle / static_cast<double>(bytes_) * shard_.count);
    return std::min(index, shard_.count - 1);
  }

  StateShard shard_;
  uint64_t bytes_;
  uint64_t done_ = 0;
};

std::string text_of(const StateValue::Key& key) {
  const auto* text = std::get_if<std::string>(&key);
  return text != nullptr ? *text : std::to_string(std::get<int64_t>(key));
}

StateValue::Dict merge_below(const StateValue::Dict& whole, const StateValue::Dict& part,
                             const std::string& source, const std::string& path) {
  StateValue::Dict merged = whole;
  std::map<StateValue::Key, size_t> places;
  for (size_t i = 0; i < merged.entries.size(); ++i) places.emplace(merged.entries[i].key, i);
  for (const auto& [key, value] : part.entries) {
    const auto found = places.find(key);
    if (found == places.end()) {
      merged.add(key, value);
      continue;
    }
    StateValue& there = merged.entries[found->second].value;
    const std::string name = path + text_of(key);
    const auto* ours = there.get_if<StateValue::Dict>();
    const auto* theirs = value.get_if<StateValue::Dict>();
    if (ours == nullptr || theirs == nullptr)
      throw CheckpointError(source, name, "it in one file of the checkpoint", "it in two");
    there = merge_below(*ours, *theirs, source, name + ".");
  }
  return merged;
}

}  // namespace

std::string shard_file_name(int index) {
  return index == 0 ? "state.pt" : "state-" + std::to_string(index) + ".pt";
}

StateValue::Dict shard_of(const StateValue::Dict& state, const StateShard& shard) {
  return ShardCutter(shard, bytes_in_dicts(state)).cut(state);
}

StateValue::Dict mark_of(const StateShard& shard) {
  StateValue::Dict mark;
  mark.add("index", shard.index);
  mark.add("count", shard.count);
  return mark;
}

void check_whole(const StateValue::Dict& state, const std::string& source) {
  const StateValue* mark = state.find(kShardKey);
  const auto* dict = mark == nullptr ? nullptr : mark->get_if<StateValue::Dict>();
  if (dict == nullptr || dict->find("index") == nullptr)
    return;  // not a shard's mark, but for example weights of that name
  const StateView shard(*mark, source, "['shard']");
  throw CheckpointError(source, "state", "a whole one",
                        "part " + std::to_string(shard.at("index").integer()) + " of " +
                            std::to_string(shard.at("count").integer()) +
                            ", which the other workers have the rest of: load the checkpoint's folder");
}

StateValue::Dict merge_shards(const StateValue::Dict& whole, const StateValue::Dict& part,
                              const std::string& source) {
  return merge_below(whole, part, source, "");
}

}  // namespace lockstep
