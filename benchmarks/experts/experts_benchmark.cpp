#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/statistics.h"
#include "lockstep/strategies/parallel/mixture_of_experts.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kExpertsAgainstDense{Bar::Side::kAtLeast, 0.9};
constexpr Bar kExpertsAgainstLoop{Bar::Side::kAtLeast, 1.0};

struct ExpertWork {
  int64_t sequences = 8;
  int64_t tokens = 512;
  int64_t features = 512;
  int64_t hidden = 1024;  ///< of each expert
  int64_t experts = 8;
  int64_t chosen = 2;
  bool has_gate = false;
};

/// Weights of a layer with gradients: of an MLP, or of experts one after another.
struct Weights {
  std::vector<torch::Tensor> all;
  torch::Tensor add(at::IntArrayRef shape) {
    const torch::NoGradGuard no_grad;
    all.push_back((torch::randn(shape) * 0.02).set_requires_grad(true));
    return all.back();
  }
};

/// Runs forward and backward of `forward` on `x`, and returns the seconds.
double seconds_of(const torch::Tensor& x, const std::vector<torch::Tensor>& weights,
                  const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  auto own = x.detach().requires_grad_();
  for (auto weight : weights) weight.mutable_grad().reset();
  const auto start = std::chrono::steady_clock::now();
  forward(own).sum().backward();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

torch::Tensor dense_mlp(const torch::Tensor& x, const torch::Tensor& gate, const torch::Tensor& up,
                        const torch::Tensor& down) {
  const auto hidden =
      gate.defined() ? at::silu(at::linear(x, gate)) * at::linear(x, up) : at::gelu(at::linear(x, up));
  return at::linear(hidden, down);
}

/// The layer as programs in Python write it: a loop over the experts, which looks for each one's tokens.
struct LoopOverExperts {
  LoopOverExperts(const ExpertWork& work, Weights& weights) : work(work) {
    router = weights.add({work.experts, work.features});
    for (int64_t expert = 0; expert < work.experts; ++expert) {
      gates.push_back(work.has_gate ? weights.add({work.hidden, work.features}) : torch::Tensor());
      ups.push_back(weights.add({work.hidden, work.features}));
      downs.push_back(weights.add({work.features, work.hidden}));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) const {
    const auto tokens = x.flatten(0, 1);
    auto [values, chosen] = at::linear(tokens, router).softmax(-1).topk(work.chosen, -1);
    const auto gating = values / values.sum(-1, /*keepdim=*/true);
    auto sum = torch::zeros_like(tokens);
    for (size_t expert = 0; expert < ups.size(); ++expert) {
      const auto places = chosen.eq(static_cast<int64_t>(expert)).nonzero().unbind(1);
      const auto rows =
          dense_mlp(tokens.index_select(0, places[0]), gates[expert], ups[expert], downs[expert]);
      sum = sum.index_add(0, places[0], rows * gating.index({places[0], places[1]}).unsqueeze(1));
    }
    return sum.view(x.sizes());
  }

  ExpertWork work;
  torch::Tensor router;
  std::vector<torch::Tensor> gates, ups, downs;
};

void print_ratio(const std::string& layer, const std::string& other, const AlternatingPairs& pairs,
                 const Bar& bar) {
  std::vector<double> ratios;
  for (const double ratio : pairs.ratios()) ratios.push_back(1 / ratio);
  const auto interval = measurement::median_with_interval(ratios);
  std::cout << fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.3f} | {:.3f} to {:.3f} | {} {} |\n", layer,
                           other, 1e3 * measurement::median(pairs.first),
                           1e3 * measurement::median(pairs.second), interval.median, interval.lower,
                           interval.upper, bar.str(), bar.is_met(interval) ? "met" : "missed");
}

void compare_layers(ExpertWork work, int pairs) {
  torch::manual_seed(1);
  MixtureOfExperts experts(MixtureOfExpertsOptions{
      .features = work.features,
      .hidden_features = work.hidden,
      .num_experts = work.experts,
      .experts_per_token = work.chosen,
      .activation = work.has_gate ? ExpertActivation::kSwiGlu : ExpertActivation::kGelu,
      .bias = false});
  Weights of_dense;
  const int64_t wide = work.chosen * work.hidden;
  const auto gate = work.has_gate ? of_dense.add({wide, work.features}) : torch::Tensor();
  const auto up = of_dense.add({wide, work.features});
  const auto down = of_dense.add({work.features, wide});
  Weights of_loop;
  const LoopOverExperts loop(work, of_loop);
  const auto x = torch::randn({work.sequences, work.tokens, work.features});
  const auto own_weights = experts->parameters();
  const auto own = [&] {
    return seconds_of(x, own_weights, [&](const auto& in) {
      const auto mixed = experts->forward(in);
      return mixed.output + 0.01 * mixed.balance_loss.sum() + 0.001 * mixed.z_loss.sum();
    });
  };
  const auto dense = [&] {
    return seconds_of(x, of_dense.all, [&](const auto& in) { return dense_mlp(in, gate, up, down); });
  };
  const auto plain = [&] {
    return seconds_of(x, of_loop.all, [&](const auto& in) { return loop.forward(in); });
  };
  for (int i = 0; i < 2; ++i) {
    own();
    dense();
    plain();
  }
  const std::string layer = fmt::format("{} of {} experts of {} x {}, {}", work.chosen, work.experts,
                                        work.features, work.hidden, work.has_gate ? "SwiGLU" : "GELU");
  print_ratio(layer, fmt::format("one MLP of {} x {}", work.features, wide),
              measure_alternating_pairs(pairs, own, dense), kExpertsAgainstDense);
  print_ratio(layer, "a loop over the experts", measure_alternating_pairs(pairs, own, plain),
              kExpertsAgainstLoop);
}

int run(int argc, char** argv) {
  int pairs = 21;
  if (argc == 3 && std::string(argv[1]) == "--pairs") {
    pairs = std::stoi(argv[2]);
  } else if (argc != 1) {
    std::cout
        << "experts_benchmark [--pairs N]\n\n"
           "Compares forward and backward of a mixture of experts with an MLP that takes as many "
           "operations for a token, and with a plain loop over the experts, in N alternating pairs (21). "
           "Prints a table in Markdown; a ratio above 1 means that the mixture is faster.\n";
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  std::cout << fmt::format("{}, {}, {} threads, float32.\n\n", measurement::today(),
                           measurement::describe_machine(), at::get_num_threads())
            << "| layer | compared with | ms | the other's ms | ratio | 95 % interval | bar |\n"
               "|---|---|---|---|---|---|---|\n";
  compare_layers({}, pairs);
  compare_layers({.has_gate = true}, pairs);
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
