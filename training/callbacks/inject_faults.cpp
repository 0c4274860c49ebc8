#include "lockstep/training/callbacks/inject_faults.h"

#include <ATen/ops/nextafter.h>

#include <csignal>
#include <limits>
#include <stdexcept>
#include <string>

#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

void change_parameter(const torch::nn::Module& module, FaultKind kind) {
  const torch::NoGradGuard no_grad;
  const auto parameters = module.parameters();
  if (parameters.empty()) return;
  const auto flat = parameters.front().detach().view({-1});
  auto last = flat[flat.numel() - 1];
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (kind == FaultKind::kNan) {
    last.fill_(std::numeric_limits<double>::quiet_NaN());
  } else {
    last.copy_(at::nextafter(last, torch::full_like(last, kInfinity)));
  }
}

int signal_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return SIGKILL;
    case FaultKind::kStop:
      return SIGSTOP;
    case FaultKind::kTerm:
      return SIGTERM;
    default:
      return SIGINT;
  }
}

}  // namespace

void InjectFaults::on_step_end(FitState& state) {
  const ClusterResolver* cluster = state.strategy().cluster_resolver();
  if (cluster != nullptr && cluster->restart_count() > 0) return;
  for (const auto& fault : faults_) {
    if (fault.step != state.global_step) continue;
    if (fault.kind == FaultKind::kNan || fault.kind == FaultKind::kUlp) {
      const auto local = fault.place - state.strategy().first_local_replica();
      const auto& modules = state.objects().modules;
      if (local >= 0 && local < static_cast<int>(modules.size()))
        change_parameter(*modules[static_cast<size_t>(local)], fault.kind);
    } else if (fault.place == (cluster == nullptr ? 0 : cluster->rank())) {
      if (fault.kind == FaultKind::kThrow)
        throw std::runtime_error("an injected fault after step " + std::to_string(fault.step));
      std::raise(signal_of(fault.kind));
    }
  }
}

}  // namespace lockstep
