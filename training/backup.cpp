#include "lockstep/training/backup.h"

#include <c10/util/StringUtil.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <latch>
#include <system_error>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/intra_op_threads.h"
#include "lockstep/strategies/cluster_resolver.h"
#include "lockstep/training/checkpoint_error.h"
#include "lockstep/training/checkpoint_store.h"
#include "lockstep/training/state_archive.h"
#include "lockstep/training/state_view.h"

namespace lockstep {
namespace {

constexpr const char* kStateFile = "state.pt";
/// Workers ask worker 0 for its clock, which takes an exchange, after so many steps.
constexpr int64_t kStepsBetweenClocks = 10;

torch::Tensor bytes_of(const std::string& text) {
  auto tensor = torch::empty({static_cast<int64_t>(text.size())}, torch::kUInt8);
  if (!text.empty()) std::memcpy(tensor.mutable_data_ptr(), text.data(), text.size());
  return tensor;
}

std::string text_of(const torch::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

CheckpointStoreOptions store_options(const Strategy& strategy, const BackupOptions& options) {
  CheckpointStoreOptions store{.folder = options.folder, .keep_last = options.keep_last};
  if (const ClusterResolver* cluster = strategy.cluster_resolver()) {
    store.job = cluster->job_id();
    store.generation = cluster->restart_count();
  }
  return store;
}

/// In one thread: those of OpenMP, which an operator would take, wait actively afterwards, and keep the
/// replicas from the cores.
torch::Tensor copy_of(const torch::Tensor& tensor) {
  const auto plain = tensor.detach();
  const bool is_plain = plain.is_cpu() && plain.layout() == torch::kStrided &&
                        plain.is_non_overlapping_and_dense() && !plain.is_conj() && !plain.is_neg();
  if (!is_plain) return plain.to(torch::kCPU, false, true);
  auto copy = torch::empty_like(plain);
  if (plain.nbytes() > 0) std::memcpy(copy.mutable_data_ptr(), plain.const_data_ptr(), plain.nbytes());
  return copy;
}

/// Memory of its own, so that training may go on.
StateValue::Dict copy_of(const StateValue::Dict& state) {
  const torch::NoGradGuard no_grad;
  const StateValue copied = map_tensors<torch::Tensor>(
      StateValue(state), [](const torch::Tensor& tensor) { return copy_of(tensor); });
  return *copied.get_if<StateValue::Dict>();
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
  if (!is_chief()) return;
  store_ = std::make_unique<CheckpointStore>(store_options(strategy, options_));
  const auto there = list_checkpoints(options_.folder);
  const ClusterResolver* cluster = strategy.cluster_resolver();
  // A job that is started again goes on from where its earlier start came to.
  if (!there.empty() && cluster != nullptr && cluster->restart_count() > 0) options_.resume = "auto";
  if (there.empty() || options_.resume != "never") return;
  throw CheckpointError("[Backup] expected a folder without checkpoints, as nothing is to be resumed, but " +
                        there.front() + " is there: resume from it, or take another folder");
}

/// A checkpoint that cannot be written is no reason to end a training.
template <typename Act>
void Backup::attempt(const Act& act, const char* consequence) {
  try {
    act();
  } catch (const std::system_error& error) {
    say(c10::str("a checkpoint could not be saved", consequence, ": ", error.what()));
  }
}

Backup::~Backup() {
  try {
    attempt([&] { await_writing(); });
  } catch (const std::exception& error) {
    std::cerr << "a checkpoint could not be saved: " << error.what() << std::endl;
  }
}

bool Backup::is_chief() const {
  return strategy_.first_local_replica() == 0;
}

void Backup::say(const std::string& line) const {
  if (options_.on_message) {
    options_.on_message(line);
  } else {
    std::cerr << line << std::endl;
  }
}

/// The newest one that is whole, or the one that was asked for. An empty path: none is there.
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
      const CheckpointManifest manifest = read_manifest(path);
      for (const auto& file : manifest.files)
        if (file.name == kStateFile) return {path, read_checkpoint_file(path, file)};
      throw CheckpointError(path + "/manifest.json", "files", kStateFile, "others");
    } catch (const CheckpointUnreadable&) {
      throw;  // it may be whole
    } catch (const CheckpointError& error) {
      if (is_one) throw;
      if (damage.empty()) damage = error.what();
      say(std::string("passed over a damaged checkpoint: ") + error.what());
    }
  }
  if (!damage.empty())
    throw CheckpointError(where + ": expected a whole checkpoint, but all are damaged: " + damage);
  return {};
}

/// The content of the state file, which worker 0 reads and the others get from it; `path` is set.
std::string Backup::read_from_chief(std::string& path) {
  Loaded loaded;
  std::string refusal;
  if (is_chief() && options_.resume != "never") {
    try {
      loaded = find_checkpoint();
    } catch (const CheckpointError& error) {
      refusal = error.what();
    }
  }
  const auto& extended = strategy_.extended();
  std::vector<torch::Tensor> told;
  if (is_chief()) {
    told = {bytes_of(refusal), bytes_of(loaded.path),
            torch::tensor({static_cast<int64_t>(loaded.bytes.size())}, torch::kLong)};
  }
  const auto heard = extended.gather_tensors(told).front();
  refusal = text_of(heard[0]);
  if (!refusal.empty()) throw CheckpointError(refusal);
  path = text_of(heard[1]);
  if (path.empty() || strategy_.num_local_replicas() == strategy_.num_replicas_in_sync())
    return std::move(loaded.bytes);
  const auto bytes =
      is_chief() ? bytes_of(loaded.bytes) : torch::empty({heard[2].item<int64_t>()}, torch::kUInt8);
  extended.broadcast_from_chief_({bytes});
  return is_chief() ? std::move(loaded.bytes) : text_of(bytes);
}

std::optional<Backup::Restored> Backup::restore() {
  Restored restored;
  const std::string bytes = read_from_chief(restored.path);
  if (restored.path.empty()) return std::nullopt;
  const std::string source = restored.path + "/" + kStateFile;
  const StateValue state = read_state_archive(InputFile(source, bytes));
  restored.progress = training_.restore(state, source);
  if (const auto more = StateView(state, source).find("more")) restored.more = more->value();
  note(restored.progress);
  if (store_) {
    say(c10::str("goes on after step ", restored.progress.step, " from ", restored.path));
    const int64_t aside = store_->set_aside_after(restored.progress.step);
    if (aside > 0) say(c10::str("set aside ", aside, " later checkpoints in ", options_.folder));
  }
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
  if (strategy_.num_local_replicas() == strategy_.num_replicas_in_sync()) return is_late;
  if (progress.step % kStepsBetweenClocks != 0) return false;
  const auto decided = torch::tensor({int64_t{is_late}}, torch::kLong);
  strategy_.extended().broadcast_from_chief_({decided});
  return decided.item<int64_t>() != 0;
}

void Backup::step_done(const TrainingProgress& progress) {
  if (is_due(progress)) save(progress);
}

StateValue::Dict Backup::take(const TrainingProgress& progress, StateValue more) {
  StateValue::Dict state = training_.snapshot(progress);
  note(progress);
  if (!store_) return state;
  state.add("more", std::move(more));
  state.add("configuration", options_.configuration);
  return state;
}

void Backup::write(const TrainingProgress& progress, const StateValue::Dict& state, bool is_best) {
  store_->save(
      {.step = progress.step, .epoch = progress.epoch, .is_best = is_best, .version = LOCKSTEP_VERSION},
      kStateFile, [&](PartSink& sink) { write_state_archive(state, sink); });
}

void Backup::save(const TrainingProgress& progress, StateValue more, bool is_best) {
  constexpr const char* kGoesOn = ", the training goes on";
  StateValue::Dict state = take(progress, std::move(more));
  if (!store_) return;
  attempt([&] { await_writing(); }, kGoesOn);
  if (!options_.asynchronous) return attempt([&] { write(progress, state, is_best); }, kGoesOn);
  attempt(
      [&] {
        // Threads of its own for operators would wait actively, and keep the replicas from the cores.
        const IntraOpThreadsGuard keep;
        std::latch has_set(1);
        writing_ = std::async(std::launch::async, [this, progress, is_best, copy = copy_of(state), &has_set] {
          set_intra_op_threads(1);
          has_set.count_down();
          write(progress, copy, is_best);
        });
        has_set.wait();
      },
      kGoesOn);
}

void Backup::save_and_wait(const TrainingProgress& progress, StateValue more, bool is_best) {
  const StateValue::Dict state = take(progress, std::move(more));
  if (!store_) return;
  attempt([&] { await_writing(); });
  write(progress, state, is_best);
}

void Backup::await_writing() {
  if (writing_.valid()) writing_.get();
}

void Backup::finish() {
  if (!store_) return;
  attempt([&] { await_writing(); });
  if (options_.delete_on_success) store_->clear();
}

}  // namespace lockstep
