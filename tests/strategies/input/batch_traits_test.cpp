#include "lockstep/strategies/input/batch_traits.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using NoTarget = torch::data::example::NoTarget;

struct PairsOfTensors {
  torch::Tensor a, b;
  int64_t size() const { return a.size(0); }
  PairsOfTensors slice(int64_t begin, int64_t end) const {
    return {a.slice(0, begin, end), b.slice(0, begin, end)};
  }
  void for_each_tensor(const auto& visit) { visit(a), visit(b); }
  void for_each_tensor(const auto& visit) const { visit(a), visit(b); }
};

TEST(BatchTraits, OfATensorCountsRowsAndKeepsTypeAndShape) {
  const auto batch = torch::ones({3, 2, 4}, torch::kByte);
  EXPECT_EQ(BatchTraits<torch::Tensor>::size(batch), 3);
  const auto none = BatchTraits<torch::Tensor>::none_of(batch);
  EXPECT_EQ(none.sizes(), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(none.scalar_type(), torch::kByte);
}

TEST(BatchTraits, OfAnExampleTakeInDataAndTarget) {
  using Traits = BatchTraits<Example>;
  const Example batch(torch::ones({3, 2}), torch::ones({3}, torch::kLong));
  EXPECT_EQ(Traits::size(batch), 3);
  const auto none = Traits::none_of(batch);
  EXPECT_EQ(none.data.sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(none.target.sizes(), (std::vector<int64_t>{0}));
  EXPECT_EQ(none.target.scalar_type(), torch::kLong);
  EXPECT_TRUE(torch::equal(Traits::to(batch, torch::kCPU).target, batch.target));
}

TEST(BatchTraits, OfAnExampleWithoutTarget) {
  using Traits = BatchTraits<torch::data::Example<torch::Tensor, NoTarget>>;
  const torch::data::Example<torch::Tensor, NoTarget> batch(torch::ones({5, 2}));
  EXPECT_EQ(Traits::size(batch), 5);
  EXPECT_EQ(Traits::none_of(batch).data.size(0), 0);
  EXPECT_EQ(Traits::to(batch, torch::kCPU).data.size(0), 5);
}

TEST(BatchTraits, AnUndefinedTargetStaysUndefined) {
  using Traits = BatchTraits<Example>;
  const Example batch(torch::ones({3, 2}), {});
  EXPECT_EQ(Traits::size(batch), 3);
  EXPECT_FALSE(Traits::none_of(batch).target.defined());
  EXPECT_FALSE(Traits::slice(batch, 1, 3).target.defined());
  EXPECT_EQ(Traits::slice(batch, 1, 3).data.size(0), 2);
  EXPECT_FALSE(Traits::to(batch, torch::kCPU).target.defined());
}

TEST(BatchTraits, OfTuplesAndVectorsTakeInEveryPart) {
  using Tuple = std::tuple<torch::Tensor, Example>;
  const Tuple tuple(torch::ones({2, 7}), Example(torch::ones({2}), torch::ones({2, 3})));
  EXPECT_EQ(BatchTraits<Tuple>::size(tuple), 2);
  const auto none = BatchTraits<Tuple>::none_of(tuple);
  EXPECT_EQ(std::get<0>(none).sizes(), (std::vector<int64_t>{0, 7}));
  EXPECT_EQ(std::get<1>(none).target.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(std::get<1>(BatchTraits<Tuple>::to(tuple, torch::kCPU)).data.size(0), 2);

  using Vector = std::vector<torch::Tensor>;
  const Vector vector{torch::ones({4, 1}), torch::ones({4})};
  EXPECT_EQ(BatchTraits<Vector>::size(vector), 4);
  EXPECT_EQ(BatchTraits<Vector>::none_of(vector)[1].size(0), 0);
  EXPECT_EQ(BatchTraits<Vector>::to(vector, torch::kCPU).size(), 2U);
  EXPECT_EQ(BatchTraits<Vector>::size({}), 0);
}

TEST(BatchTraits, CutsEveryPartOfABatch) {
  using Batch =
      std::tuple<Example, torch::data::Example<torch::Tensor, NoTarget>, std::vector<torch::Tensor>>;
  const auto numbers = torch::arange(12).reshape({6, 2});
  const Batch batch({numbers, numbers + 100}, {numbers + 200}, {numbers + 300, numbers + 400});
  const auto parts = [](const Batch& of) {
    const auto& [example, data, more] = of;
    return std::vector{example.data, example.target, data.data, more[0], more[1]};
  };
  for (const auto& [begin, end] : {std::pair{0, 6}, std::pair{1, 4}, std::pair{5, 6}, std::pair{3, 3}}) {
    const auto cut = parts(BatchTraits<Batch>::slice(batch, begin, end));
    const auto whole = parts(batch);
    for (size_t i = 0; i < cut.size(); ++i)
      EXPECT_TRUE(cut[i].equal(whole[i].index({torch::indexing::Slice(begin, end)}))) << "part " << i;
  }
}

TEST(BatchTraits, JoinsAndSelectsEveryPartOfABatch) {
  using Batch =
      std::tuple<Example, torch::data::Example<torch::Tensor, NoTarget>, std::vector<torch::Tensor>>;
  static_assert(Selectable<Batch>);
  const auto numbers = torch::arange(12).reshape({6, 2});
  const Batch batch({numbers, numbers + 100}, {numbers + 200}, {numbers + 300, numbers + 400});
  const auto parts = [](const Batch& of) {
    const auto& [example, data, more] = of;
    return std::vector{example.data, example.target, data.data, more[0], more[1]};
  };
  const auto whole = parts(batch);
  const auto joined = parts(
      BatchTraits<Batch>::cat({BatchTraits<Batch>::slice(batch, 0, 1), BatchTraits<Batch>::slice(batch, 1, 4),
                               BatchTraits<Batch>::slice(batch, 4, 6)}));
  const auto indices = torch::tensor({5, 0, 3, 3}, torch::kLong);
  const auto selected = parts(BatchTraits<Batch>::select(batch, indices));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(joined[i].equal(whole[i])) << "part " << i;
    EXPECT_TRUE(selected[i].equal(whole[i].index({indices}))) << "part " << i;
  }
  // Targets that are not there stay so.
  const Example without(numbers, {});
  EXPECT_FALSE(BatchTraits<Example>::cat({without, without}).target.defined());
  EXPECT_FALSE(BatchTraits<Example>::select(without, indices).target.defined());
}

TEST(BatchTraits, OfAClassAreItsMembers) {
  using Traits = BatchTraits<PairsOfTensors>;
  static_assert(HasTensors<PairsOfTensors> && !Selectable<PairsOfTensors>);
  const PairsOfTensors batch{torch::arange(5), torch::ones({5, 2})};
  EXPECT_EQ(Traits::size(batch), 5);
  EXPECT_EQ(Traits::none_of(batch).b.sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(Traits::slice(batch, 1, 4).a.equal(torch::arange(1, 4)));
  const auto moved = Traits::to(batch, torch::kMeta);
  EXPECT_TRUE(moved.a.is_meta() && moved.b.is_meta());
  EXPECT_TRUE(batch.a.is_cpu());
}

TEST(BatchTraits, ASliceThatIsChangedInPlaceDoesNotDisturbTheGradientOfAnother) {
  const auto batch = torch::ones({4, 1});
  const auto first = BatchTraits<torch::Tensor>::slice(batch, 0, 2);
  auto second = BatchTraits<torch::Tensor>::slice(batch, 2, 4);
  const auto weight = torch::ones({1}, torch::requires_grad());
  const auto loss = (first * weight).sum();  // keeps the slice for backward
  second.mul_(3);
  loss.backward();
  EXPECT_EQ(weight.grad().item<float>(), 2);
}

TEST(Collate, StacksExamplesAndPassesBatchesThrough) {
  std::vector<Example> examples;
  for (int i = 0; i < 3; ++i) examples.emplace_back(torch::full({2}, i), torch::tensor(i));
  const Example batch = collate(examples);
  EXPECT_EQ(batch.data.sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(torch::equal(batch.target, torch::tensor({0, 1, 2})));
  EXPECT_TRUE(collate(batch).data.is_same(batch.data));
}

}  // namespace
}  // namespace lockstep
