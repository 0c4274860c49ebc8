#include "lockstep/strategies/parallel/internal/parallelized_layers.h"

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Looks after all of a replica's parallelized modules: a layer that was moved by itself would compute with a
/// part as if it were the whole.
class MarkCheck final : public EndsWithRun {
 public:
  void add(const std::shared_ptr<torch::nn::Module>& layers) {
    std::erase_if(layers_, [](const auto& known) { return known.expired(); });
    layers_.push_back(layers);
  }
  void end_run() override {
    for (const auto& known : layers_) {
      if (const auto layers = known.lock()) static_cast<const ParallelizedLayers&>(*layers).check_marks();
    }
  }
  void abandon_run() noexcept override {}

 private:
  std::vector<std::weak_ptr<torch::nn::Module>> layers_;
};

}  // namespace

ParallelizedLayers::ParallelizedLayers() : torch::nn::Module("lockstep::ParallelizedLayers") {}

void ParallelizedLayers::add_weight(const std::string& name, const torch::Tensor& weight,
                                    const std::shared_ptr<ParallelizedLayer>& layer) {
  add({name, weight, layer, std::nullopt});
}

void ParallelizedLayers::add_part(const std::string& name, const torch::Tensor& parameter,
                                  const ShardedParameter& part) {
  add({name, parameter, nullptr, part});
}

void ParallelizedLayers::add(Entry entry) {
  mark(entry);
  for (auto& known : entries_) {
    if (!known.parameter.is_same(entry.parameter)) continue;
    known = std::move(entry);
    return;
  }
  entries_.push_back(std::move(entry));
}

void ParallelizedLayers::mark(const Entry& entry) {
  if (entry.layer == nullptr) return mark_shard(entry.parameter, *entry.part);
  entry.parameter.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<LayerMark>(entry.layer));
}

void ParallelizedLayers::mark_all() const {
  for (const auto& entry : entries_) mark(entry);
}

void ParallelizedLayers::check_marks() const {
  for (const auto& entry : entries_) {
    // Of a weight, another kind of mark says that it is a part, but not that its layer communicates.
    const bool is_marked = entry.layer == nullptr
                               ? is_cut(entry.parameter)
                               : !entry.layer->cut || parallelized_layer_of(entry.parameter) != nullptr;
    if (is_marked) continue;
    throw InvalidArgument(
        "[parallelize] expected '" + entry.name +
        "' to be moved or converted with the whole module that was parallelized, but it has "
        "lost its mark as a part: call to() of that module, not of a layer");
  }
}

void ParallelizedLayers::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  mark_all();  // A sharded unit does not move its modules, but their parameters.
  replica->shared<MarkCheck>()->add(shared_from_this());
  for (const auto& entry : entries_) {
    if (entry.layer != nullptr) entry.layer->axis().bind(replica);
  }
}

void ParallelizedLayers::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  mark_all();
}

void ParallelizedLayers::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  mark_all();
}

void ParallelizedLayers::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  mark_all();
}

}  // namespace lockstep
