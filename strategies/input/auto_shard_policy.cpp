#include "lockstep/strategies/input/auto_shard_policy.h"

#include <array>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

constexpr std::array kPolicyNames{
    std::pair{AutoShardPolicy::kAuto, "auto"}, std::pair{AutoShardPolicy::kOff, "off"},
    std::pair{AutoShardPolicy::kData, "data"}, std::pair{AutoShardPolicy::kFile, "file"}};

}  // namespace

std::string auto_shard_name(AutoShardPolicy policy) {
  for (const auto& [known, name] : kPolicyNames) {
    if (policy == known) return name;
  }
  return "unknown";
}

AutoShardPolicy resolve_auto_shard(AutoShardPolicy policy, size_t num_files, int num_workers) {
  const bool file_for_each = num_files >= static_cast<size_t>(num_workers);
  if (policy == AutoShardPolicy::kAuto)
    return file_for_each ? AutoShardPolicy::kFile : AutoShardPolicy::kData;
  if (policy == AutoShardPolicy::kFile && !file_for_each) {
    throw InvalidArgument("[AutoShardPolicy] expected a file for each worker, " +
                          std::to_string(num_workers) + " or more, to divide by file, but got " +
                          std::to_string(num_files));
  }
  return policy;
}

std::vector<std::string> files_of_worker(const std::vector<std::string>& files, int worker, int num_workers) {
  std::vector<std::string> own;
  for (auto i = static_cast<size_t>(worker); i < files.size(); i += static_cast<size_t>(num_workers))
    own.push_back(files[i]);
  return own;
}

int64_t share_of_global_batch(int64_t global_batch_size, int first, int count, int num_replicas) {
  // floor(size * replica / num_replicas), without a product that could overflow.
  const auto begin = [&](int64_t replica) {
    return global_batch_size / num_replicas * replica +
           global_batch_size % num_replicas * replica / num_replicas;
  };
  return begin(first + count) - begin(first);
}

}  // namespace lockstep
