#pragma once

#include <memory>

#include "lockstep/benchmarks/loops/strategy_loop.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/benchmarks/loops/workload.h"

namespace lockstep::benchmarks {

/// MultiWorkerMirroredStrategy with `options.num_replicas` worker processes of one replica each on this
/// machine, connected over loopback; each on a GPU of its own if the workload has GPUs. This process is
/// worker 0; it starts the others, as jobs of this program. The options' cluster is made here. The first
/// run() is one step.
std::unique_ptr<TrainingLoop> make_workers_loop(const Workload& workload, StrategyLoopOptions options);

/// One of those others, with the same options, in the cluster that its environment names.
std::unique_ptr<TrainingLoop> make_worker_loop(const Workload& workload, StrategyLoopOptions options);

}  // namespace lockstep::benchmarks
