#pragma once

#include <memory>

#include "lockstep/benchmarks/training_loop.h"
#include "lockstep/benchmarks/workload.h"

namespace lockstep::benchmarks {

/// MultiWorkerMirroredStrategy with so many worker processes of one replica each on this machine, connected
/// over loopback. This process is worker 0; it starts the others, as jobs of this program. The first run() is
/// one step.
std::unique_ptr<TrainingLoop> make_workers_loop(const Workload& workload, int num_workers);

/// One of those others, in the cluster that its environment names.
std::unique_ptr<TrainingLoop> make_worker_loop(const Workload& workload, int num_workers);

}  // namespace lockstep::benchmarks
