#pragma once

#include "lockstep/apps/train_mnist/train_options.h"
#include "lockstep/strategies/make_strategy.h"

namespace lockstep::apps {

/// Makes the strategy that --strategy, --devices, --replicas, --cross-device-ops and --threads ask for.
/// Throws UsageError naming the flags where it cannot be made here.
MadeStrategy choose_strategy(const TrainOptions& options);

}  // namespace lockstep::apps
