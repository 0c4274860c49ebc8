#include "lockstep/training/divergence_check.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/strategy.h"
#include "lockstep/training/optimizer_state.h"
#include "lockstep/training/replica_states.h"

namespace lockstep {
namespace {

/// The bits of a tensor as integers of its elements' size. Complex ones are two of half the size.
torch::Tensor words_of(const torch::Tensor& tensor) {
  const auto plain = tensor.detach().contiguous();
  const auto flat = (plain.is_complex() ? torch::view_as_real(plain).contiguous() : plain).view({-1});
  switch (flat.element_size()) {
    case 8:
      return flat.view(torch::kLong);
    case 4:
      return flat.view(torch::kInt);
    case 2:
      return flat.view(torch::kShort);
    default:
      return flat.view(torch::kByte);
  }
}

/// An odd number for each place, in no order: differences that have one, such as of neighbours, must not
/// cancel.
torch::Tensor factors(const torch::Tensor& words) {
  // 2^64 over the golden ratio, and a multiplier of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
  // Pseudorandom Number Generators", 2014).
  constexpr auto kStep = static_cast<int64_t>(0x9E3779B97F4A7C15U);
  constexpr auto kMix = static_cast<int64_t>(0xBF58476D1CE4E5B9U);
  constexpr int64_t kShift = 29;
  auto mixed = torch::arange(1, words.numel() + 1, words.options()).mul_(kStep);
  mixed = mixed.bitwise_xor_(mixed.bitwise_right_shift(kShift)).mul_(kMix);
  return mixed.bitwise_xor_(mixed.bitwise_right_shift(kShift)).bitwise_or_(1);
}

/// An int64 scalar on the tensor's device.
torch::Tensor digest_of(const torch::Tensor& tensor) {
  const auto words = words_of(tensor).to(torch::kLong);
  return factors(words).mul_(words).sum();
}

struct NamedDigests {
  std::vector<std::string> names;
  torch::Tensor digests;  // [names], on the CPU
};

NamedDigests digests_of(const torch::nn::Module& module, const torch::optim::Optimizer* optimizer) {
  const torch::NoGradGuard no_grad;
  NamedDigests all;
  std::vector<torch::Tensor> digests;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != torch::kStrided) return;
    all.names.push_back(name);
    digests.push_back(digest_of(tensor).reshape({1}));
  };
  for (const auto& item : module.named_parameters()) add("parameter " + item.key(), item.value());
  if (optimizer != nullptr) {
    visit_tensors(
        StateValue(optimizer_state(*optimizer)),
        [&](const std::string& name, const torch::Tensor& tensor) { add("optimizer " + name, tensor); });
  }
  // At once where they lie on one device: each copy waits for it.
  if (digests.empty()) {
    all.digests = torch::zeros({0}, torch::kLong);
    return all;
  }
  const auto device = digests.front().device();
  for (auto& digest : digests) digest = digest.to(device);
  all.digests = torch::cat(digests).cpu();
  return all;
}

/// The replica that differs from most others: of two, the second.
size_t odd_one_out(const std::vector<int64_t>& digests) {
  std::map<int64_t, size_t> counts;
  for (const int64_t digest : digests) ++counts[digest];
  size_t odd = 1;
  size_t fewest = digests.size() + 1;
  for (size_t replica = digests.size(); replica-- > 0;) {
    if (counts[digests[replica]] < fewest) {
      fewest = counts[digests[replica]];
      odd = replica;
    }
  }
  return odd;
}

}  // namespace

void check_divergence(Strategy& strategy, int64_t step, const std::vector<ModulePointer>& modules,
                      const std::vector<torch::optim::Optimizer*>& optimizers) {
  if (strategy.num_replicas_in_sync() < 2) return;
  std::vector<std::string> names;
  std::vector<torch::Tensor> own;
  for (size_t local = 0; local < modules.size(); ++local) {
    auto digests = digests_of(*modules[local], optimizers.empty() ? nullptr : optimizers[local]);
    names = std::move(digests.names);
    own.push_back(std::move(digests.digests));
  }
  const auto all = gather_of_replicas(strategy, own);
  for (size_t replica = 1; replica < all.size(); ++replica) {
    if (all[replica].numel() == all[0].numel()) continue;
    throw InconsistentReplicas(
        c10::str("[DivergenceCheck] expected states of as many tensors, but after step ", step, " replica ",
                 replica, " has ", all[replica].numel(), " and replica 0 has ", all[0].numel()));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<int64_t> digests;
    for (const auto& of_replica : all) digests.push_back(of_replica.const_data_ptr<int64_t>()[i]);
    if (std::all_of(digests.begin(), digests.end(), [&](int64_t digest) { return digest == digests[0]; }))
      continue;
    const size_t odd = odd_one_out(digests);
    throw InconsistentReplicas(
        c10::str("[DivergenceCheck] expected the same bits on all replicas, but after step ", step,
                 " replica ", odd, " has other ones in ", names[i], " than replica ", odd == 0 ? 1 : 0));
  }
}

DivergenceCheck::DivergenceCheck(const DivergenceCheckOptions& options) : options_(options) {
  if (options.every_steps < 1) {
    throw InvalidArgument(
        c10::str("[DivergenceCheck] expected every_steps of 1 or more, but got ", options.every_steps));
  }
}

void DivergenceCheck::on_step_end(FitState& state) {
  if (state.global_step % options_.every_steps == 0) check(state);
}

void DivergenceCheck::on_fit_end(FitState& state) {
  check(state);
}

void DivergenceCheck::check(FitState& state) {
  check_divergence(state.strategy(), state.global_step, state.objects().modules, state.objects().optimizers);
}

}  // namespace lockstep
