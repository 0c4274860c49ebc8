#pragma once

#include "lockstep/models/parts/model_parts.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Returns what makes each part of a model a sharded unit along the axis of the strategy's sharding, but for
/// parts that have vectors only, such as a norm: too little to gather. Returns an empty function unless the
/// strategy shards parameters. Call it in a scope's factory.
PartWrapper sharded_parts(const Strategy& strategy, ReplicaContext& replica);

}  // namespace lockstep::apps
