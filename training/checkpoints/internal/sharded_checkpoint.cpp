#include "lockstep/training/checkpoints/internal/sharded_checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/core/strategy_extended.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/checkpoints/internal/background_writing.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"
#include "lockstep/training/state/internal/text_tensor.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Result of a worker's task, as told to the other workers.
struct Outcome {
  static constexpr int64_t kDone = 0;
  static constexpr int64_t kUnderWay = -1;
  static constexpr int64_t kTaken = -2;         // a later start of the job has the folder
  static constexpr int64_t kOtherFailure = -3;  // not a system error

  int64_t state = kDone;  // one of these, or the system's error number
  std::string text;       // the result, or the failure's message
};

Outcome describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::system_error& error) {
    // Throwing the failure again adds the error number's text again.
    std::string text = error.what();
    const std::string reason = ": " + error.code().message();
    if (text.ends_with(reason)) text.resize(text.size() - reason.size());
    return {.state = error.code().value() > 0 ? error.code().value() : EIO, .text = text};
  } catch (const CheckpointError& error) {
    return {.state = Outcome::kTaken, .text = error.what()};
  } catch (const std::exception& error) {
    return {.state = Outcome::kOtherFailure, .text = error.what()};
  }
}

/// Returns every worker's outcome, in order; without texts while a worker is still busy. A collective.
std::vector<Outcome> exchange(Strategy& strategy, const Outcome& own) {
  const auto& extended = strategy.extended();
  std::vector<Outcome> all;
  bool is_done = true;
  for (const auto& tensors : extended.gather_tensors({torch::tensor({own.state}, torch::kLong)})) {
    all.push_back({.state = tensors.front().item<int64_t>(), .text = {}});
    is_done = is_done && all.back().state != Outcome::kUnderWay;
  }
  if (!is_done) return all;
  const auto texts = extended.gather_tensors({text_tensor(own.text)});
  for (size_t worker = 0; worker < all.size(); ++worker)
    all[worker].text = text_of_tensor(texts[worker].front());
  return all;
}

/// Throws the failure of the first worker that failed. `failure` is that of this worker, of index `rank`.
void throw_failure(const std::vector<Outcome>& all, size_t rank, const std::exception_ptr& failure) {
  for (size_t worker = 0; worker < all.size(); ++worker) {
    const auto& [state, text] = all[worker];
    if (state == Outcome::kDone) continue;
    if (worker == rank) std::rethrow_exception(failure);
    const std::string told = "worker " + std::to_string(worker) + ": " + text;
    if (state > 0) throw std::system_error(static_cast<int>(state), std::generic_category(), told);
    if (state == Outcome::kTaken) throw CheckpointError(told);
    throw ClusterError(told);
  }
}

/// Tries to make a file in a folder. Returns 0 or the system's error number.
int try_to_write(const std::string& folder, int worker) {
  const std::string path = folder + "/probe-" + std::to_string(worker);
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  ::unlink(path.c_str());
  return 0;
}

/// Passes writes on until the checkpoint is given up, then throws GivenUp.
class GivenUpSink : public PartSink {
 public:
  struct GivenUp : std::exception {};

  GivenUpSink(PartSink& sink, const std::atomic<bool>& is_given_up)
      : sink_(sink), is_given_up_(is_given_up) {}

  void write(const void* bytes, size_t count) override {
    constexpr size_t kMost = size_t{4} << 20;  // bytes between two checks
    const char* next = static_cast<const char*>(bytes);
    while (count > 0) {
      check();
      const size_t size = std::min(count, kMost);
      sink_.write(next, size);
      next += size;
      count -= size;
    }
  }
  void end_part(const std::string& name) override {
    check();
    sink_.end_part(name);
  }

 private:
  void check() const {
    if (is_given_up_) throw GivenUp();
  }

  PartSink& sink_;
  const std::atomic<bool>& is_given_up_;
};

}  // namespace

StateShard shard_of_worker(const Strategy& strategy) {
  if (strategy.num_local_replicas() == strategy.num_ranks()) return {};
  const ClusterResolver* cluster = strategy.cluster_resolver();
  return {.index = cluster->rank(), .count = cluster->world_size()};
}

std::string act_on_chief(Strategy& strategy, bool is_chief, const std::function<std::string()>& act) {
  Outcome own;
  std::exception_ptr failure;
  if (is_chief) {
    try {
      own.text = act();
    } catch (...) {
      failure = std::current_exception();
      own = describe(failure);
    }
  }
  auto all = exchange(strategy, own);
  throw_failure(all, is_chief ? 0 : all.size(), failure);
  return std::move(all.front().text);
}

/// Begins a checkpoint on worker 0. Returns its folder by this worker's path. Throws as act_on_chief() does.
static std::string begin_together(Strategy& strategy, const std::string& folder, CheckpointStore* store) {
  return folder + "/" + act_on_chief(strategy, store != nullptr, [&] {
           return fs::path(store->begin()).filename().string();
         });
}

void check_all_share(Strategy& strategy, bool shares) {
  const auto all =
      exchange(strategy, {.state = Outcome::kDone, .text = shares ? "together" : "by worker 0 alone"});
  for (size_t worker = 1; worker < all.size(); ++worker) {
    if (all[worker].text == all.front().text) continue;
    throw InvalidArgument("[Backup] expected the same on all workers, but worker 0 has checkpoints written " +
                          all.front().text + " (BackupOptions::sharded), and worker " +
                          std::to_string(worker) + " " + all[worker].text);
  }
}

void check_shared(Strategy& strategy, const std::string& folder, CheckpointStore* store) {
  const std::string begun = begin_together(strategy, folder, store);
  const auto all =
      exchange(strategy, {.state = try_to_write(begun, shard_of_worker(strategy).index), .text = folder});
  if (store != nullptr) CheckpointStore::abandon(begun);
  for (size_t worker = 0; worker < all.size(); ++worker) {
    const auto& [state, text] = all[worker];
    if (state == ENOENT) {
      throw CheckpointError(
          "[Backup] expected a folder that all workers share, as each writes a part of a checkpoint, but "
          "what worker 0 makes in '" +
          all.front().text + "' is not in worker " + std::to_string(worker) + "'s '" + text + "'");
    }
    if (state != Outcome::kDone) {
      throw std::system_error(static_cast<int>(state), std::generic_category(),
                              "worker " + std::to_string(worker) + ": cannot write in '" + text + "'");
    }
  }
}

ShardedCheckpoint::ShardedCheckpoint(Strategy& strategy, const std::string& folder, CheckpointStore* store,
                                     CheckpointManifest manifest)
    : strategy_(strategy),
      store_(store),
      manifest_(std::move(manifest)),
      shard_(shard_of_worker(strategy)),
      begun_(begin_together(strategy, folder, store)) {}

ShardedCheckpoint::~ShardedCheckpoint() {
  is_given_up_ = true;
  if (work_.valid()) work_.wait();
  if (store_ != nullptr) CheckpointStore::abandon(begun_);
}

void ShardedCheckpoint::write(StateValue::Dict shard, bool in_background) {
  const auto write_now = [this](const StateValue::Dict& state) {
    file_ = write_checkpoint_file(begun_, shard_file_name(shard_.index), [&](PartSink& sink) {
      GivenUpSink until_given_up(sink, is_given_up_);
      write_state_archive(state, until_given_up);
    });
  };
  try {
    if (!in_background) return write_now(shard);
    work_ = lockstep::in_background([write_now, state = std::move(shard)] { write_now(state); });
  } catch (...) {
    failure_ = std::current_exception();
  }
}

/// Returns whether this worker has finished this phase, even by failing.
bool ShardedCheckpoint::finish_own(bool waits) {
  if (!work_.valid()) return true;
  if (!waits && work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return false;
  try {
    work_.get();
  } catch (...) {
    failure_ = std::current_exception();
  }
  return true;
}

bool ShardedCheckpoint::commit(bool waits) {
  while (true) {
    Outcome own;
    if (!finish_own(waits)) {
      own.state = Outcome::kUnderWay;
    } else if (failure_) {
      own = describe(failure_);
    } else if (phase_ == Phase::kWriting) {
      own.text = manifest_text({.files = {file_}});
    }
    const auto all = exchange(strategy_, own);
    // Failures are reported only once no worker writes there any more.
    for (const auto& outcome : all)
      if (outcome.state == Outcome::kUnderWay) return false;
    throw_failure(all, static_cast<size_t>(shard_.index), failure_);
    if (phase_ == Phase::kCommitting) return true;
    phase_ = Phase::kCommitting;
    if (store_ != nullptr) {
      std::vector<std::string> shards;
      for (const auto& outcome : all) shards.push_back(outcome.text);
      begin_commit(shards);
    }
    if (!waits) return false;
  }
}

/// `shards` holds the manifest of each worker's file.
void ShardedCheckpoint::begin_commit(const std::vector<std::string>& shards) {
  try {
    for (size_t worker = 0; worker < shards.size(); ++worker) {
      const auto of_shard = parse_manifest(shards[worker], "worker " + std::to_string(worker));
      manifest_.files.insert(manifest_.files.end(), of_shard.files.begin(), of_shard.files.end());
    }
    work_ = in_background([this] { store_->commit(begun_, manifest_); });
  } catch (...) {
    failure_ = std::current_exception();
  }
}

}  // namespace lockstep
