#pragma once

// Not to be included alone: part of trainer.h.

#include <concepts>
#include <type_traits>

#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

namespace detail {

/// The type of the model that a Trainer is made of `Source` for: a Mirrored module, a module, or a factory.
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

/// Makes it one a replica.
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
