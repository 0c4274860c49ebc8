#include "lockstep/tests/equivalence/random_training.h"

#include <ATen/ops/arange.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using Kind = LayerPlan::Kind;

// Some nets magnify rounding, on one device, too.
constexpr double kLeastTolerance = 1e-12;
constexpr double kMostTolerance = 1e-6;

/// Draws all of a training.
class Draws {
 public:
  explicit Draws(unsigned seed) : random_(seed) {}

  std::mt19937& random() { return random_; }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int64_t number(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }
  template <typename T, size_t kSize>
  T one_of(const std::array<T, kSize>& values) {
    return values[static_cast<size_t>(number(0, kSize - 1))];
  }

 private:
  std::mt19937 random_;
};

ParityLayout random_layout(Draws& draws) {
  ParityLayout layout{.workers = {static_cast<int>(draws.number(1, 4))},
                      .stage = draws.chance(0.6) ? 3 : static_cast<int>(draws.number(0, 2))};
  const int replicas = layout.replicas();
  if (replicas > 1 && draws.chance(0.2)) {
    const int first = static_cast<int>(draws.number(1, replicas - 1));
    layout.workers = {first, replicas - first};
  }
  if (draws.chance(0.6)) {
    const int shards =
        replicas == 4 ? draws.one_of(std::array{1, 2, 2, 2, 4}) : draws.one_of(std::array{1, replicas});
    const MeshAxis shard{"shard", shards};
    const MeshAxis data{"data", replicas / shards};
    layout.mesh = draws.chance(0.5) ? Mesh{data, shard} : Mesh{shard, data};
  }
  layout.overlaps = draws.chance(0.7);
  return layout;
}

torch::Tensor random_values(uint64_t seed, at::IntArrayRef sizes) {
  return torch::randn(sizes, at::detail::createCPUGenerator(seed), torch::kDouble);
}

/// Flips whether parameters are trained: every third but the last layer's two, so that some always are.
void flip_some(const std::vector<torch::Tensor>& parameters) {
  for (size_t i = 0; i + 2 < parameters.size(); i += 3)
    torch::Tensor(parameters[i]).set_requires_grad(!parameters[i].requires_grad());
}

/// Whether the training has a meaning: something is trained, and batch norms get two examples.
bool is_valid(const RandomTraining& training) {
  const bool is_trained = any_layer(training.net, [](const LayerPlan& layer) {
    return !layer.has_layers() && layer.kind != Kind::kAgain && !layer.is_frozen;
  });
  const bool has_batch_norm =
      any_layer(training.net, [](const LayerPlan& layer) { return layer.kind == Kind::kBatchNorm; });
  const auto sizes = training.sizes_of_micro_batches();
  return is_trained && (!has_batch_norm || *std::min_element(sizes.begin(), sizes.end()) >= 2);
}

/// Calls `use` with trainings that have one part less, or a simpler one: the simplest first.
void for_each_simpler(const RandomTraining& training, const std::function<void(const RandomTraining&)>& use) {
  const auto use_changed = [&](const auto& change) {
    RandomTraining changed = training;
    change(changed);
    use(changed);
  };
  const auto set_layout = [&](const ParityLayout& layout) {
    if (layout.str() != training.layout.str()) use_changed([&](auto& changed) { changed.layout = layout; });
  };
  const auto& layout = training.layout;
  const auto with_overlap = [&](ParityLayout changed) {
    changed.overlaps = layout.overlaps;
    return changed;
  };
  for (const int replicas : {1, 2}) {
    if (replicas < layout.replicas())
      set_layout(with_overlap({.workers = {replicas}, .stage = layout.stage}));
  }
  set_layout(with_overlap({.workers = {layout.replicas()}, .mesh = layout.mesh, .stage = layout.stage}));
  set_layout(with_overlap({.workers = layout.workers, .stage = layout.stage}));
  if (layout.overlaps) use_changed([](auto& changed) { changed.layout.overlaps = false; });
  if (layout.stage > 0)
    set_layout(with_overlap({.workers = layout.workers, .mesh = layout.mesh, .stage = layout.stage - 1}));
  const auto set_least = [&](auto RandomTraining::*member, auto least) {
    if (training.*member > least) use_changed([&](auto& changed) { changed.*member = least; });
    if (training.*member > least + 1) use_changed([&](auto& changed) { --(changed.*member); });
  };
  set_least(&RandomTraining::steps, 1);
  set_least(&RandomTraining::micro_batches, 1);
  set_least(&RandomTraining::freezing_step, -1);
  set_least(&RandomTraining::batch_size, int64_t{1});
  set_least(&RandomTraining::num_examples, int64_t{1});
  if (training.clip_norm) use_changed([](auto& changed) { changed.clip_norm.reset(); });
  for (size_t i = 0; i < training.optimizers.size(); ++i) {
    if (training.optimizers.size() > 1) {
      use_changed([&](auto& changed) {
        changed.optimizers.erase(changed.optimizers.begin() + static_cast<std::ptrdiff_t>(i));
      });
    }
    if (training.optimizers[i] != "sgd") use_changed([&](auto& changed) { changed.optimizers[i] = "sgd"; });
  }
  for (const int64_t width : {1, 3, 8}) {
    if (any_layer(training.net, [](const LayerPlan& layer) { return layer.inputs != layer.outputs; }))
      use_changed([&](auto& changed) { changed.net = with_width(training.net, width); });
  }
  for_each_simpler(training.net,
                   [&](const LayerPlan& net) { use_changed([&](auto& changed) { changed.net = net; }); });
}

}  // namespace

std::vector<int64_t> RandomTraining::sizes_of_batches() const {
  std::vector<int64_t> sizes;
  int64_t begin = 0;
  for (int step = 0; step < steps; ++step) {
    sizes.push_back(std::min(batch_size, num_examples - begin));
    begin = (begin + sizes.back()) % num_examples;
  }
  return sizes;
}

std::vector<int64_t> RandomTraining::sizes_of_micro_batches() const {
  std::vector<int64_t> sizes;
  for (const int64_t batch : sizes_of_batches()) {
    for (int i = 0; i < micro_batches; ++i)
      sizes.push_back(rows_of_micro_batch(batch, layout.replicas(), i, micro_batches).numel());
  }
  return sizes;
}

std::string RandomTraining::str() const {
  return c10::str(layout.str(), "\n", steps, " steps of ", optimizers, ", batches of ", batch_size, " of ",
                  num_examples, " examples, ", micro_batches, " micro-batches, ",
                  clip_norm ? c10::str("clipped to ", *clip_norm) : "not clipped",
                  freezing_step < 0 ? "" : c10::str(", freezing before step ", freezing_step),
                  ", buckets of ", bucket_bytes, " bytes\n", lockstep::str(net));
}

std::string RandomTraining::problem() const {
  ParityTraining training{
      .make_net = [this](NetPlace& place) { return make_random_net(net, place); },
      .data = {random_values(1, {num_examples, net.inputs}), random_values(2, {num_examples, net.outputs})},
      .optimizers = optimizers,
      .batch_size = batch_size,
      .micro_batches = micro_batches,
      .steps = steps,
      .clip_norm = clip_norm,
      .bucket_bytes = bucket_bytes};
  if (freezing_step >= 0) {
    training.before_step = [this](const std::vector<torch::Tensor>& parameters, int step) {
      if (step == freezing_step) flip_some(parameters);
    };
  }
  const double rounding = rounding_of(training, layout.replicas());
  return problem_of(training, layout, std::clamp(100 * rounding, kLeastTolerance, kMostTolerance));
}

RandomTraining random_training(unsigned seed) {
  Draws draws(seed);
  RandomTraining training;
  training.layout = random_layout(draws);
  constexpr std::array kOptimizers{"sgd",        "adam",        "adamw",   "fused_sgd",
                                   "fused_adam", "fused_adamw", "adagrad", "rmsprop"};
  const int64_t num_optimizers = draws.number(1, 3);
  for (int64_t i = 0; i < num_optimizers; ++i) training.optimizers.emplace_back(draws.one_of(kOptimizers));
  training.batch_size = draws.number(1, 9);
  training.num_examples = training.batch_size + draws.number(0, 9);
  training.micro_batches = static_cast<int>(draws.one_of(std::array{1, 1, 2, 3}));
  training.steps = static_cast<int>(draws.number(2, 7));
  if (draws.chance(0.5)) training.clip_norm = draws.one_of(std::array{0.1, 1.0, 100.0});
  if (draws.chance(0.25)) training.freezing_step = static_cast<int>(draws.number(1, training.steps - 1));
  training.bucket_bytes = draws.one_of(std::array<int64_t, 3>{64, 256, 1 << 20});
  const auto sizes = training.sizes_of_micro_batches();
  training.net =
      random_net(draws.random(), {.has_batch_norms = *std::min_element(sizes.begin(), sizes.end()) >= 2});
  return training;
}

RandomTraining shrunk(RandomTraining training, const std::function<bool(const RandomTraining&)>& fails,
                      int most_calls) {
  int calls = 0;
  for (bool is_simpler = true; is_simpler;) {
    is_simpler = false;
    RandomTraining next;
    for_each_simpler(training, [&](const RandomTraining& simpler) {
      if (is_simpler || calls >= most_calls || !is_valid(simpler)) return;
      ++calls;
      is_simpler = fails(simpler);
      if (is_simpler) next = simpler;
    });
    if (is_simpler) training = std::move(next);
  }
  return training;
}

}  // namespace lockstep
