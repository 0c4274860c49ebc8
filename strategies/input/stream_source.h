#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "lockstep/strategies/input/distributed_dataset.h"
#include "lockstep/strategies/input/pipeline_source.h"

namespace lockstep {

struct StreamOptions {
  int prefetch = 2;
};

namespace detail {

template <typename Pipeline>
concept CallablePipeline = requires(Pipeline& pipeline) {
  pipeline().has_value();
};

template <typename Pipeline>
concept IterablePipeline = requires(Pipeline& pipeline) {
  collate(*pipeline->begin());
  pipeline->end();
};

/// Returns a callable for a pipeline with begin() and end() behind a pointer.
template <typename Pipeline>
auto make_callable(Pipeline pipeline) {
  if constexpr (CallablePipeline<Pipeline>) {
    return pipeline;
  } else {
    using Batch = decltype(collate(*pipeline->begin()));
    auto shared = std::make_shared<Pipeline>(std::move(pipeline));
    auto at = std::make_shared<std::optional<decltype((*shared)->begin())>>();
    return [shared, at]() -> std::optional<Batch> {
      if (!*at) {
        at->emplace((*shared)->begin());
      } else if (**at != (*shared)->end()) {
        ++**at;
      }
      if (**at == (*shared)->end()) return std::nullopt;
      return collate(***at);
    };
  }
}

/// Takes one batch of a pipeline for each local replica and step.
template <typename Batch>
class StreamSource : public PipelineSource<Batch> {
 public:
  StreamSource(typename PipelineSource<Batch>::MakePipeline make, InputPlacement placement)
      : PipelineSource<Batch>("distribute_datasets_from_function", std::move(make),
                              {.num_input_pipelines = placement.num_workers,
                               .input_pipeline_id = placement.worker,
                               .num_replicas_in_sync = placement.num_replicas},
                              placement) {}

 private:
  std::optional<typename PipelineSource<Batch>::Step> draw_step() override {
    const auto& placement = this->placement();
    typename PipelineSource<Batch>::Step step;
    std::vector<Batch> of_replicas;
    for (int i = 0; i < placement.num_local_replicas(); ++i) {
      auto batch = this->draw();
      if (!batch && of_replicas.empty()) return std::nullopt;
      of_replicas.push_back(batch ? std::move(*batch) : BatchTraits<Batch>::none_of(of_replicas.front()));
      step.num_examples += BatchTraits<Batch>::size(of_replicas.back());
    }
    if (!placement.replicas) {
      step.shards = std::move(of_replicas);
      return step;
    }
    for (const int replica : *placement.replicas)
      step.shards.push_back(of_replicas[static_cast<size_t>(replica - placement.first_local_replica())]);
    return step;
  }
};

}  // namespace detail

/// Implements Strategy::distribute_datasets_from_function().
template <typename Fn>
auto make_distributed_stream(const Fn& make, const StreamOptions& options, InputPlacement placement) {
  using Made = std::decay_t<std::invoke_result_t<const Fn&, const InputContext&>>;
  static_assert(
      detail::CallablePipeline<Made> || detail::IterablePipeline<Made>,
      "distribute_datasets_from_function() takes a function that makes a pipeline: a callable "
      "std::optional<Batch>(), or a pointer to something with begin() and end(), such as a torch::data "
      "loader");
  using Callable = decltype(detail::make_callable(make(std::declval<const InputContext&>())));
  using Batch = typename std::invoke_result_t<Callable&>::value_type;
  check_prefetch(options.prefetch, 1);
  check_whole_replicas(placement, "distribute_datasets_from_function");
  auto source = std::make_shared<detail::StreamSource<Batch>>(
      [make](const InputContext& context) {
        return std::function<std::optional<Batch>()>(detail::make_callable(make(context)));
      },
      std::move(placement));
  return DistributedDataset<Batch>(std::move(source), options.prefetch, 1);
}

}  // namespace lockstep
