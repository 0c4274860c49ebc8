#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/internal/attention_block.h"

namespace lockstep {

/// Computes attention over a sequence whose tokens are divided among the ranks as `order` says, which must
/// divide the heads (Jacobs et al., "DeepSpeed Ulysses", 2023). The ranks exchange tokens for heads, each
/// computes attention of its heads over the whole sequence, and they exchange back. Keys of fewer heads than
/// that are repeated. `ranks` is none for one rank; `waits` adds up forward's waits.
at::Tensor exchanged_attention(const std::optional<ReplicaBackends>& ranks, WaitClock* waits,
                               const ContextOrder& order, const AttentionInputs& inputs,
                               const AttentionRule& rule);

}  // namespace lockstep
