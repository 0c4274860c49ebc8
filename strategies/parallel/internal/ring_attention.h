#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/context_order.h"
#include "lockstep/strategies/parallel/internal/attention_block.h"

namespace lockstep {

/// A part of the queries and a part of the keys between which there is attention.
struct AttentionSpan {
  TokenRange queries;  ///< among this rank's tokens
  TokenRange keys;     ///< among the other rank's tokens
  bool is_causal = false;
};

/// Returns the only block between this rank's queries and the keys of rank `source`, none if no query attends
/// to a key.
std::optional<AttentionSpan> span_of(const ContextOrder& order, int source, bool is_causal);

/// Computes attention over a sequence whose tokens are divided among the ranks of `ring` as `order` says
/// (Liu et al., "Ring Attention with Blockwise Transformers", 2023). Keys and values go around: each rank
/// adds what they contribute to its queries and hands them on. Backward hands them around again, with their
/// gradients. Both go around with few heads at a time, so that a rank needs memory for its own tokens and
/// little more. All tensors are contiguous. `ring` is none for one rank; `waits` adds up forward's waits.
at::Tensor ring_attention(const std::optional<ReplicaBackends>& ring, WaitClock* waits,
                          const ContextOrder& order, const AttentionInputs& inputs,
                          const AttentionRule& rule);

}  // namespace lockstep
