#pragma once

#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/strategies/sharding/unit_options.h"

namespace lockstep {
namespace detail {

template <typename Block>
struct ImplOf {
  using Type = Block;
};
template <typename Block>
requires requires {
  typename Block::ContainedType;
}
struct ImplOf<Block> {
  using Type = typename Block::ContainedType;
};

/// The type of `&Impl::forward`, or void if forward is overloaded or a template.
template <typename Impl>
struct ForwardOf {
  using Type = void;
};
template <typename Impl>
requires requires {
  &Impl::forward;
}
struct ForwardOf<Impl> {
  using Type = decltype(&Impl::forward);
};

/// Whether a value is a block, as its holder or a pointer to it.
template <typename T, typename Block>
concept HoldsBlock = std::convertible_to<T, std::shared_ptr<typename ImplOf<Block>::Type>> ||
    (std::same_as<std::remove_cvref_t<T>, Block> && !std::same_as<Block, typename ImplOf<Block>::Type>);

template <typename T, typename Block>
concept MakesBlock = requires(T& make) {
  { make() } -> HoldsBlock<Block>;
};

/// Makes the block of a unit: the one that is given, the result of a factory, or one from arguments.
template <typename Block, typename... Args>
std::shared_ptr<typename ImplOf<Block>::Type> make_block(Args&&... args) {
  using Impl = typename ImplOf<Block>::Type;
  if constexpr (sizeof...(Args) == 1 && (HoldsBlock<Args, Block> && ...)) {
    if constexpr ((std::convertible_to<Args, std::shared_ptr<Impl>> && ...)) {
      return (std::forward<Args>(args), ...);
    } else {
      return (args.ptr(), ...);
    }
  } else if constexpr (sizeof...(Args) == 1 && (MakesBlock<std::remove_reference_t<Args>, Block> && ...)) {
    return make_block<Block>(args()...);
  } else if constexpr (std::same_as<Block, Impl>) {
    return std::make_shared<Impl>(std::forward<Args>(args)...);
  } else {
    return Block(std::forward<Args>(args)...).ptr();
  }
}

/// The unit of a Sharded<Block>.
template <typename Block>
class ShardedBlock : public ShardedModule {
 public:
  using Impl = typename ImplOf<Block>::Type;

  template <typename... Args>
  explicit ShardedBlock(const UnitOptions& options, Args&&... args)
      : ShardedBlock(Held{make_block<Block>(std::forward<Args>(args)...)}, options) {}

  /// Calls the block's forward, whose default arguments may be left out.
  template <typename... Args>
  auto operator()(Args&&... args) {
    return call([this](auto&... own) { return block_->forward(own...); }, std::forward<Args>(args)...);
  }

 private:
  struct Held {
    std::shared_ptr<Impl> block;
  };
  ShardedBlock(Held held, const UnitOptions& options)
      : ShardedModule(held.block, options), block_(std::move(held.block)) {}

  std::shared_ptr<Impl> block_;
};

}  // namespace detail

/// The class of Sharded<Block>'s module. It has the block's forward, so that it can take the block's place in
/// containers such as Sequential.
///
/// Example:
///
///     torch::nn::ModuleList layers;
///     layers->push_back(Sharded<Layer>(options, 1024));
///     x = layers->ptr<ShardedImpl<Layer>>(0)->forward(x);
template <typename Block,
          typename Forward = typename detail::ForwardOf<typename detail::ImplOf<Block>::Type>::Type>
class ShardedImpl : public detail::ShardedBlock<Block> {
 public:
  using detail::ShardedBlock<Block>::ShardedBlock;
  template <typename... Args>
  auto forward(Args&&... args) {
    return (*this)(std::forward<Args>(args)...);
  }
};
template <typename Block, typename Result, typename Class, typename... Args>
class ShardedImpl<Block, Result (Class::*)(Args...)> : public detail::ShardedBlock<Block> {
 public:
  using detail::ShardedBlock<Block>::ShardedBlock;
  Result forward(Args... args) { return (*this)(std::forward<Args>(args)...); }
};
template <typename Block, typename Result, typename Class, typename... Args>
class ShardedImpl<Block, Result (Class::*)(Args...) const> : public detail::ShardedBlock<Block> {
 public:
  using detail::ShardedBlock<Block>::ShardedBlock;
  Result forward(Args... args) { return (*this)(std::forward<Args>(args)...); }
};

/// A block whose parameters are cut over the ranks that train it; see ShardedModule. `Block` is a module's
/// class or its holder. It computes what the block computes, with the same initial values.
///
/// The constructor takes the options, and then what the block's takes, a function that makes the block, or a
/// block, which nothing else may use from then on. The block is made whole, cut, and freed, so that a model
/// of units needs the memory of its shards and of one unit.
///
/// Example:
///
///     auto model = strategy.scope([](ReplicaContext& replica) {
///       const UnitOptions options = along(replica.axis("data"));
///       torch::nn::Sequential model;
///       for (int i = 0; i < 8; ++i) model->push_back(Sharded<Layer>(options, 1024));
///       return model;
///     });
template <typename Block>
class Sharded : public torch::nn::ModuleHolder<ShardedImpl<Block>> {
 public:
  using torch::nn::ModuleHolder<ShardedImpl<Block>>::ModuleHolder;
  using Impl = ShardedImpl<Block>;

  template <typename... Args>
  auto operator()(Args&&... args) {
    return (*this->get())(std::forward<Args>(args)...);
  }
};

}  // namespace lockstep
