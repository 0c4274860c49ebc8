#pragma once

// Part of trainer.h: do not include it directly.

#include <concepts>
#include <type_traits>

#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

namespace detail {

/// Type of the model that a Trainer made from `Source` trains: a Mirrored module, a module, or a factory.
template <typename Source>
struct ModelOf;
template <typename Model>
struct ModelOf<Mirrored<Model>> {
  using Type = Model;
};
template <ModuleLike Model>
struct ModelOf<Model> {
  using Type = Model;
};
template <typename Factory>
requires std::invocable<const Factory&, ReplicaContext&>
struct ModelOf<Factory> {
  using Type = std::invoke_result_t<const Factory&, ReplicaContext&>;
};

/// Makes one model for each replica from `source`.
template <typename Source>
auto mirrored_model(Strategy& strategy, Source source) {
  if constexpr (std::invocable<const Source&, ReplicaContext&>) {
    return strategy.scope(source);
  } else if constexpr (ModuleLike<Source>) {
    return strategy.mirror(source);
  } else {
    return source;
  }
}

}  // namespace detail

}  // namespace lockstep
