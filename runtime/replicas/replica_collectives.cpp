#include "lockstep/runtime/replicas/replica_collectives.h"

#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/graphs/graph_recording.h"

namespace lockstep {

ReplicaCollectives::ReplicaCollectives(std::string strategy, int replica_id, int num_replicas,
                                       std::vector<AxisPosition> axes)
    : strategy_(std::move(strategy)),
      replica_id_(replica_id),
      num_replicas_(num_replicas),
      axes_(axes.empty() ? std::vector<AxisPosition>{{"data", replica_id, num_replicas}} : std::move(axes)) {}

c10::intrusive_ptr<c10d::Backend> ReplicaCollectives::backend(const std::string& who) const {
  check_caller(who);
  return backend_;
}

const AxisPosition& ReplicaCollectives::position(const std::string& who, const std::string& axis) const {
  return axes_[position_in(axes_, who, axis)];
}

ReplicaBackends ReplicaCollectives::backends(const std::string& who, const std::string& axis) const {
  check_caller(who);
  return along_axes_.at(position_in(axes_, who, axis));
}

RankRandom ReplicaCollectives::rank_random(const std::string& who) const {
  check_caller(who);
  if (rank_generator_ == nullptr)
    throw InvalidArgument("[" + who + "] expected a run with random streams of its ranks, but it has none");
  return RankRandom(*rank_generator_);
}

void ReplicaCollectives::refuse_capture(const std::string& who, const std::string& operation) const {
  check_caller(who);
  if (recording_ == nullptr || *recording_ == nullptr || !(*recording_)->is_capturing()) return;
  throw InvalidArgument("[" + who + "] " + operation +
                        " cannot be part of a CudaGraph: call the function without one");
}

void ReplicaCollectives::check_caller(const std::string& who) const {
  if (thread_.load() != std::this_thread::get_id()) {
    throw InvalidArgument("[" + who + "] expected to train inside a run of the " + strategy_ +
                          " whose model it is part of, in replica " + std::to_string(replica_id_) +
                          "'s own thread, but got a call from elsewhere: the other replicas would not "
                          "take part");
  }
}

ReplicaCollectives::Run::Run(ReplicaCollectives& replica, const c10::intrusive_ptr<c10d::Backend>& backend,
                             WaitClock& waits, std::vector<ReplicaBackends> axes,
                             const at::Generator* rank_generator, GraphRecording* const* recording)
    : replica_(replica) {
  replica_.backend_ = backend;
  replica_.along_axes_ = axes.empty() ? std::vector<ReplicaBackends>{backend} : std::move(axes);
  replica_.waits_ = &waits;
  replica_.rank_generator_ = rank_generator;
  replica_.recording_ = recording;
  replica_.thread_ = std::this_thread::get_id();
}

void ReplicaCollectives::reset() const noexcept {
  for (const auto& state : ends_with_run_) state->abandon_run();
}

void ReplicaCollectives::Run::finish() {
  for (const auto& state : replica_.ends_with_run_) state->end_run();
  is_finished_ = true;
}

ReplicaCollectives::Run::~Run() {
  if (!is_finished_) replica_.reset();
  replica_.thread_ = std::thread::id();
  replica_.backend_.reset();
  replica_.along_axes_.clear();
  replica_.waits_ = nullptr;
  replica_.rank_generator_ = nullptr;
  replica_.recording_ = nullptr;
}

}  // namespace lockstep
