#pragma once

#include <torch/types.h>

#include <functional>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/measured_run.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/distributed_dataset.h"

namespace lockstep::apps {

/// Trains on a batch. Returns each replica's part of the global batch's mean loss, without a gradient.
using MeasuredStep = std::function<PerReplica<torch::Tensor>(const PerReplica<Example>&)>;

/// Makes the steps of `options` on the batches, which are repeated as often as that takes, and times those
/// after the warm-up, until the devices have finished the last one. Sets all fields but `data` and
/// `parameters`. A collective of all workers.
MeasuredRun time_steps(const CompareOptions& options, Strategy& strategy,
                       const DistributedDataset<Example>& batches, const MeasuredStep& make_step);

}  // namespace lockstep::apps
