// The programs that docs/ shows to those who come from elsewhere compute what a bare LibTorch loop does.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <pages.h>  // written out of docs/, see write_pages.py

namespace {

/// 300 examples, so that the last batch of 64 is smaller, in 10 classes.
struct Examples {
  torch::Tensor data = torch::rand({300, 8});
  torch::Tensor target = torch::randint(10, {300}, torch::kLong);
};

constexpr uint64_t kSeed = 7;  // of the initial values

/// The mean loss of the last batch before its step, after 5 epochs by hand.
double train_by_hand(const Examples& examples, double momentum, std::optional<uint64_t> shuffle_seed) {
  torch::manual_seed(kSeed);
  torch::nn::Linear model(8, 10);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum));
  double last = 0;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> order;
    if (shuffle_seed) {
      for (const size_t index : lockstep::epoch_permutation(300, *shuffle_seed, epoch))
        order.push_back(static_cast<int64_t>(index));
    }
    const auto rows = shuffle_seed ? torch::tensor(order) : torch::arange(300);
    for (const auto& batch : rows.split(64)) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(model(examples.data.index_select(0, batch)),
                                                             examples.target.index_select(0, batch));
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
    }
  }
  return last;
}

using Train = double (*)(const torch::Tensor& data, const torch::Tensor& target);

void expect_to_train_as_by_hand(Train train, double momentum, std::optional<uint64_t> shuffle_seed) {
  const Examples examples;
  const double expected = train_by_hand(examples, momentum, shuffle_seed);
  torch::manual_seed(kSeed);
  EXPECT_NEAR(train(examples.data, examples.target), expected, 1e-5);
}

TEST(Pages, FromTfDistributeTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_tf_distribute::train, 0, std::nullopt);
}

TEST(Pages, FromPytorchDdpTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_pytorch_ddp::train, 0.9, 1);
}

TEST(Pages, FromHorovodTrainsAsABareLoop) {
  expect_to_train_as_by_hand(from_horovod::train, 0, 0);
}

}  // namespace
