#pragma once

#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Refuses a training whose replicas need more memory than a device has for it, before its first step: throws
/// OutOfMemory with what it needs, and whether parameter servers would have room. See memory_to_check() for
/// the memory of a device. For strategies without parameter servers.
void refuse_what_does_not_fit(const Strategy& strategy, const CtrOptions& options);

}  // namespace lockstep::apps
