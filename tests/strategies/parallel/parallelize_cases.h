#pragma once

#include <c10/util/accumulate.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/examples/parallel_encoder/encoder.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/parallel/check_parallelized.h"
#include "lockstep/strategies/parallel/parallelize.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"

namespace lockstep {

inline const EncoderOptions kSmallEncoder{
    .vocabulary = 12, .tokens = 6, .features = 8, .heads = 4, .hidden = 16, .blocks = 2, .classes = 5};

/// As in the example.
inline ParallelPlan encoder_plan() {
  return {{"embedding", RowwiseParallel{}},
          {"blocks.*.attention.output", RowwiseParallel{}},
          {"blocks.*.attention.*", ColwiseParallel{}},
          {"blocks.*.up", ColwiseParallel{}},
          {"blocks.*.down", RowwiseParallel{}}};
}

/// Sets values without random numbers.
inline void set_wave_values(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  double phase = 1;
  for (auto& item : module.named_parameters()) item.value().copy_(wave_values(item.value().sizes(), phase++));
}

inline Encoder wave_encoder(double dropout = 0) {
  auto options = kSmallEncoder;
  options.dropout = dropout;
  auto encoder = made_apart([&] { return Encoder(options); });
  encoder->to(torch::kDouble);
  set_wave_values(*encoder);
  return encoder;
}

inline Encoder planned_encoder(const ReplicaAxis& axis, double dropout = 0) {
  auto encoder = wave_encoder(dropout);
  parallelize(encoder, axis, encoder_plan());
  return encoder;
}

inline torch::Tensor encoder_ids(int step, int64_t count = 8) {
  return (torch::arange(count * kSmallEncoder.tokens).reshape({count, -1}) * 7 + step) %
         kSmallEncoder.vocabulary;
}

/// The encoder's forward, whose blocks are computed again in backward.
inline torch::Tensor forward_with_recomputation(Encoder& encoder, const torch::Tensor& ids) {
  auto x = encoder->embed(ids);
  for (const auto& block : *encoder->blocks) {
    auto* own = block->as<EncoderBlock>();
    x = recompute([own](const torch::Tensor& input) { return own->forward(input); }, x);
  }
  return encoder->classify(x);
}

/// A step over the replica's part of 8 examples, in two accumulated parts, with clipping.
inline ParallelStepResult encoder_step(ReplicaContext& replica, Encoder& encoder,
                                       torch::optim::AdamW& optimizer, int step, bool recomputes) {
  optimizer.zero_grad();
  const auto ids = encoder_ids(step);
  const int64_t half = ids.size(0) / replica.num_replicas() / 2;
  double loss = 0;
  const auto backward = [&](int64_t part) {
    const auto own = ids.narrow(0, (2 * replica.replica_id() + part) * half, half);
    const auto targets = own.sum(1) % kSmallEncoder.classes;
    const auto logits = recomputes ? forward_with_recomputation(encoder, own) : encoder->forward(own);
    const auto sum = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum) / 8;
    sum.backward();
    loss += sum.item<double>();
  };
  {
    const auto held = replica.accumulate();
    backward(0);
  }
  backward(1);
  return {loss, replica.apply_gradients(optimizer, {.clip_norm = 0.05})};
}

/// Trains the encoder with `replicas` whole replicas: the oracle.
inline ParallelRun trained_encoder(int replicas, int steps, double dropout = 0) {
  MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1, .seed = 3});
  auto model = strategy.scope([&](ReplicaContext&) { return wave_encoder(dropout); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  ParallelRun run;
  for (int step = 0; step < steps; ++step) {
    const auto results = strategy.run(encoder_step, model, adam, step, false);
    double loss = 0;
    for (const auto& result : results.local_values()) loss += result.loss;
    run.losses.push_back(loss);
    run.norms.push_back(results[0].norm.item<double>());
  }
  for (const auto& item : model.primary()->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

}  // namespace lockstep
