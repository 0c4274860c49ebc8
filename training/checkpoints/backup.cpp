#include "lockstep/training/checkpoints/backup.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <functional>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/checkpoints/internal/background_writing.h"
#include "lockstep/training/checkpoints/internal/sharded_checkpoint.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"
#include "lockstep/training/state/internal/text_tensor.h"
#include "lockstep/training/state/internal/whole_tensors.h"

namespace lockstep {
namespace {

/// Steps between exchanges in which workers ask worker 0 for its clock.
constexpr int64_t kStepsBetweenClocks = 10;
constexpr const char* kContinues = ", training continues";

CheckpointStoreOptions store_options(const Strategy& strategy, const BackupOptions& options) {
  CheckpointStoreOptions store{.folder = options.folder, .keep_last = options.keep_last};
  if (const ClusterResolver* cluster = strategy.cluster_resolver()) {
    store.job = cluster->job_id();
    store.generation = cluster->restart_count();
  }
  return store;
}

}  // namespace

Backup::Backup(Strategy& strategy, const BackupOptions& options)
    : strategy_(strategy),
      options_(options),
      training_(strategy),
      saved_at_(std::chrono::steady_clock::now()) {
  if (options_.folder.empty()) throw InvalidArgument("[Backup] expected a folder, but got ''");
  if (!(options_.save_every.count > 0)) {
    throw InvalidArgument(
        c10::str("[Backup] expected to save every 1 or more, but got ", options_.save_every.count));
  }
  is_chief_ = strategy.first_local_replica() == 0;
  const bool has_others = strategy.num_local_replicas() < strategy.num_ranks();
  is_sharded_ = options_.sharded && has_others;
  if (!has_others) {
    take_folder();
    return;
  }
  check_all_share(strategy_, is_sharded_);
  act_on_chief(strategy_, is_chief_, [this] {
    take_folder();
    return std::string();
  });
  if (is_sharded_) check_shared(strategy_, options_.folder, store_.get());
}

void Backup::take_folder() {
  store_ = std::make_unique<CheckpointStore>(store_options(strategy_, options_));
  const auto there = list_checkpoints(options_.folder);
  const ClusterResolver* cluster = strategy_.cluster_resolver();
  // A restarted job resumes from its earlier start's checkpoints.
  if (!there.empty() && cluster != nullptr && cluster->restart_count() > 0) options_.resume = "auto";
  if (there.empty() || options_.resume != "never") return;
  throw CheckpointError("[Backup] expected a folder without checkpoints, as nothing is to be resumed, but " +
                        there.front() + " is there: resume from it, or take another folder");
}

/// A failure to write a checkpoint must not end the training.
template <typename Act>
void Backup::attempt(const Act& act, const char* consequence) {
  try {
    act();
  } catch (const std::system_error& error) {
    // If the checkpoint is sharded, the failure is thrown on all workers.
    if (!is_chief_) return;
    log(c10::str("a checkpoint could not be saved", consequence, ": ", error.what()));
  }
}

Backup::~Backup() {
  shards_.reset();
  try {
    attempt([&] { await_writing(); });
  } catch (const std::exception& error) {
    write_error_line(std::string("a checkpoint could not be saved: ") + error.what());
  }
}

void Backup::log(const std::string& line) const {
  if (options_.on_message) {
    options_.on_message(line);
  } else {
    write_error_line(line);
  }
}

/// Returns the newest whole checkpoint, or the requested one. An empty path means that none exists.
Backup::Loaded Backup::find_checkpoint() {
  const bool is_automatic = options_.resume == "auto";
  const std::string& where = is_automatic ? options_.folder : options_.resume;
  const bool is_one = !is_automatic && is_checkpoint(where);
  const auto paths = is_one ? std::vector<std::string>{where} : list_checkpoints(where);
  if (paths.empty() && !is_automatic)
    throw CheckpointError(where + ": expected a checkpoint, or a folder with some, but there is none");
  std::string damage;
  for (const auto& path : paths) {
    try {
      return {path, read_checkpoint(path)};
    } catch (const CheckpointUnreadable&) {
      throw;  // the checkpoint may be whole
    } catch (const CheckpointError& error) {
      if (is_one) throw;
      if (damage.empty()) damage = error.what();
      log(std::string("passed over a damaged checkpoint: ") + error.what());
    }
  }
  if (!damage.empty())
    throw CheckpointError(where + ": expected a whole checkpoint, but all are damaged: " + damage);
  return {};
}

/// Reads the checkpoint on worker 0, which sends it to the others.
Backup::Loaded Backup::read_from_chief() {
  Loaded loaded;
  std::string refusal;
  if (is_chief_ && options_.resume != "never") {
    try {
      loaded = find_checkpoint();
    } catch (const CheckpointError& error) {
      refusal = error.what();
    }
  }
  const auto& extended = strategy_.extended();
  std::vector<torch::Tensor> told;
  if (is_chief_) {
    told = {text_tensor(refusal), text_tensor(loaded.path)};
    for (const auto& [path, bytes] : loaded.files) {
      told.push_back(text_tensor(path));
      told.push_back(torch::tensor({static_cast<int64_t>(bytes.size())}, torch::kLong));
    }
  }
  const auto heard = extended.gather_tensors(told).front();
  refusal = text_of_tensor(heard[0]);
  if (!refusal.empty()) throw CheckpointError(refusal);
  if (strategy_.num_local_replicas() == strategy_.num_ranks()) return loaded;
  if (!is_chief_) loaded.path = text_of_tensor(heard[1]);
  for (size_t at = 2; at < heard.size(); at += 2) {
    const auto bytes = is_chief_ ? text_tensor(loaded.files[at / 2 - 1].bytes)
                                 : torch::empty({heard[at + 1].item<int64_t>()}, torch::kUInt8);
    extended.broadcast_from_chief_({bytes});
    if (!is_chief_) loaded.files.push_back({text_of_tensor(heard[at]), text_of_tensor(bytes)});
  }
  return loaded;
}

/// Adds the way out to errors of a checkpoint that is whole, so that it must be of another training.
TrainingProgress Backup::restore_state(const StateValue& state, const std::string& source) {
  try {
    return training_.restore(state, source);
  } catch (const CheckpointUnreadable&) {
    throw;
  } catch (const CheckpointError& error) {
    throw CheckpointError(c10::str(error.what(),
                                   "; the checkpoint is of another model or optimizer than this "
                                   "one: to train anew, name another folder for the backup"));
  }
}

std::optional<Backup::Restored> Backup::restore() {
  Loaded loaded = read_from_chief();
  if (loaded.path.empty()) return std::nullopt;
  const std::string source = loaded.files.front().path;
  const StateValue state = parse_checkpoint(loaded.files);
  loaded.files.clear();
  Restored restored{.progress = restore_state(state, source), .path = loaded.path, .more = {}};
  const StateView saved(state, source);
  if (const auto more = saved.find("more")) restored.more = more->value();
  note(restored.progress);
  is_restored_ = true;
  if (store_) {
    log(c10::str("resumes after step ", restored.progress.step, " from ", restored.path));
    const int64_t aside = store_->set_aside_after(restored.progress.step);
    if (aside > 0) log(c10::str("set aside ", aside, " later checkpoints in ", options_.folder));
  }
  const auto configuration = saved.find("configuration");
  if (options_.on_resume) options_.on_resume(configuration ? configuration->text() : "");
  return restored;
}

void Backup::note(const TrainingProgress& progress) {
  saved_step_ = progress.step;
  saved_epoch_ = progress.epoch;
  saved_at_ = std::chrono::steady_clock::now();
}

bool Backup::is_due(const TrainingProgress& progress) {
  const double count = options_.save_every.count;
  const auto passed = [count](int64_t before, int64_t now) {
    return std::floor(static_cast<double>(now) / count) > std::floor(static_cast<double>(before) / count);
  };
  switch (options_.save_every.unit) {
    case SaveUnit::kEpochs:
      return passed(saved_epoch_, progress.epoch);
    case SaveUnit::kSteps:
      return passed(saved_step_, progress.step);
    case SaveUnit::kMinutes:
      break;
  }
  const std::chrono::duration<double, std::ratio<60>> minutes = std::chrono::steady_clock::now() - saved_at_;
  const bool is_late = minutes.count() >= count;
  if (strategy_.num_local_replicas() == strategy_.num_ranks()) return is_late;
  if (progress.step % kStepsBetweenClocks != 0) return false;
  const auto decided = torch::tensor({int64_t{is_late}}, torch::kLong);
  strategy_.extended().broadcast_from_chief_({decided});
  return decided.item<int64_t>() != 0;
}

void Backup::step_done(const TrainingProgress& progress) {
  commit_written();
  if (is_due(progress)) save(progress);
}

TrainingState::Collected Backup::take(const TrainingProgress& progress, StateValue more) {
  auto collected = training_.collect(progress, is_sharded_ ? shard_of_worker(strategy_) : StateShard());
  note(progress);
  is_restored_ = false;
  collected.shared.add("more", more);
  if (!store_) return collected;
  collected.own.add("more", std::move(more));
  collected.own.add("configuration", options_.configuration);
  return collected;
}

CheckpointManifest Backup::manifest_of(const TrainingProgress& progress, bool is_best) const {
  return {.step = progress.step, .epoch = progress.epoch, .is_best = is_best, .version = LOCKSTEP_VERSION};
}

void Backup::write(const CheckpointManifest& manifest, const StateValue::Dict& state) {
  store_->save(manifest, shard_file_name(0), [&](PartSink& sink) { write_state_archive(state, sink); });
}

/// Puts the tensors together that the replicas hold in parts, one after another, and has the worker with the
/// store write them.
void Backup::write_divided(const CheckpointManifest& manifest, const TrainingState::Collected& collected) {
  std::function<void(WholeTensors&)> write;
  if (store_) {
    write = [&](WholeTensors& whole) {
      store_->save(manifest, shard_file_name(0),
                   [&](PartSink& sink) { write_state_archive(collected.own, sink, std::ref(whole)); });
    };
  }
  write_whole_tensors(strategy_, collected.shared, collected.own, write);
}

void Backup::save_shard(const CheckpointManifest& manifest, const TrainingState::Collected& collected,
                        bool in_background) {
  // This worker's share of the whole tensors, which is about as much as its replicas hold.
  StateValue::Dict shard = with_whole_tensors(strategy_, collected.shared,
                                              in_background ? host_copy(collected.own) : collected.own);
  shards_ = std::make_unique<ShardedCheckpoint>(strategy_, options_.folder, store_.get(), manifest);
  shards_->write(std::move(shard), in_background);
  if (!in_background) commit_shards(true);
}

/// Drops the checkpoint even on failure, so that another one can begin.
void Backup::commit_shards(bool waits) {
  if (!shards_) return;
  try {
    if (!shards_->commit(waits)) return;
  } catch (...) {
    shards_.reset();
    throw;
  }
  shards_.reset();
}

void Backup::commit_written() {
  attempt([&] { commit_shards(false); }, kContinues);
}

void Backup::save(const TrainingProgress& progress, StateValue more, bool is_best) {
  const auto collected = take(progress, std::move(more));
  const CheckpointManifest manifest = manifest_of(progress, is_best);
  const bool is_divided = !divided_tensors_in(StateValue(collected.shared)).empty();
  attempt([&] { await_writing(); }, kContinues);
  attempt(
      [&] {
        if (is_sharded_) {
          save_shard(manifest, collected, options_.asynchronous);
        } else if (is_divided || !options_.asynchronous) {
          write_divided(manifest, collected);
        } else if (store_) {
          writing_ =
              in_background([this, manifest, copy = host_copy(collected.own)] { write(manifest, copy); });
        }
      },
      kContinues);
}

void Backup::save_and_wait(const TrainingProgress& progress, StateValue more, bool is_best) {
  const auto collected = take(progress, std::move(more));
  const CheckpointManifest manifest = manifest_of(progress, is_best);
  attempt([&] { await_writing(); });
  if (is_sharded_) {
    save_shard(manifest, collected, false);
  } else {
    write_divided(manifest, collected);
  }
}

void Backup::await_writing() {
  if (writing_.valid()) writing_.get();
  commit_shards(true);
}

void Backup::finish(const TrainingProgress& progress) {
  const bool is_saved = is_restored_ && progress.step == saved_step_ && progress.epoch == saved_epoch_;
  if (!is_saved && !options_.delete_on_success) save_and_wait(progress);
  finish();
}

void Backup::finish() {
  attempt([&] { await_writing(); });
  if (store_ && options_.delete_on_success) store_->clear();
}

}  // namespace lockstep
