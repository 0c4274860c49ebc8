// Takes a module that is finished on one device to several GPUs. On a machine without GPUs two replicas share
// the CPU: the same program, slower.
//
//     several_gpus         # on all GPUs
//     several_gpus 2 500   # on two of them, 500 steps
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

// mirror() clones a module onto each device. For that it derives from torch::nn::Cloneable, and makes in
// reset() whatever it registers.
class DigitNetImpl : public torch::nn::Cloneable<DigitNetImpl> {
 public:
  explicit DigitNetImpl(int64_t width) : width_(width) { reset(); }

  void reset() override {
    const auto convolution = [](int64_t from, int64_t to) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1));
    };
    first_ = register_module("first", convolution(1, width_));
    second_ = register_module("second", convolution(width_, 2 * width_));
    dropout_ = register_module("dropout", torch::nn::Dropout(0.1));
    output_ = register_module("output", torch::nn::Linear(2 * width_ * 7 * 7, 10));
  }

  // [N, 1, 28, 28] to logits [N, 10]. A shard may be empty: say how many values an image has, rather than -1.
  torch::Tensor forward(const torch::Tensor& images) {
    const auto features = torch::relu(second_(torch::relu(first_(images))));
    return output_(dropout_(features.reshape({images.size(0), 2 * width_ * 7 * 7})));
  }

 private:
  int64_t width_;
  torch::nn::Conv2d first_{nullptr}, second_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(DigitNet);

torch::Tensor train_step(ReplicaContext& replica, DigitNet& model, FusedAdam& optimizer,
                         const Example& batch) {
  optimizer.zero_grad();
  torch::Tensor losses;
  {
    // float32 on a CPU, where bfloat16 is often slower.
    const auto cast = replica.autocast(replica.device().is_cuda() ? torch::kBFloat16 : torch::kFloat32);
    losses = torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  }
  const auto loss = compute_average_loss(replica, losses);
  loss.backward();
  replica.apply_gradients(optimizer, {.clip_norm = 10});
  return loss.detach();
}

// The classes that the model finds in the replica's shard [n], and the true ones.
torch::Tensor predict_step(ReplicaContext&, DigitNet& model, const Example& batch) {
  return torch::stack({model->forward(batch.data).argmax(1), batch.target}, 1);
}

int main(int argc, char** argv) try {
  const int replicas = argc > 1 ? std::stoi(argv[1]) : std::max(num_gpus(), 2);
  const int steps = argc > 2 ? std::stoi(argv[2]) : 200;
  std::vector<std::string> devices = cpu_devices(replicas);  // cpu:0, cpu:1, ...: any number of them exists
  if (num_gpus() > 0) {
    for (int i = 0; i < replicas; ++i) devices[static_cast<size_t>(i)] = "gpu:" + std::to_string(i);
  }
  MirroredStrategy strategy(devices, {.seed = 1});
  std::cout << strategy.describe() << '\n';

  torch::manual_seed(1);
  DigitNet module(8);  // or load its weights: torch::load(module, "digit_net.pt")
  // The probe finds out whether the clones compute what the original does.
  auto model = strategy.mirror(module, {.probe = torch::rand({2, 1, 28, 28})});

  // Each replica gets 32 images a step. A larger global batch is a less noisy gradient, which bears a larger
  // step.
  const int64_t batch_size = 32 * strategy.num_replicas_in_sync();
  const double learning_rate = 1e-3 * static_cast<double>(batch_size) / 32;
  auto optimizer = strategy.scope(
      [&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), learning_rate); });

  auto train = strategy.distribute_dataset(GeneratedDigits({.count = 60000, .seed = 1}),
                                           {.global_batch_size = batch_size, .shuffle_seed = 1});
  int64_t step = 0;
  for (const auto& batch : train.repeat().take(steps)) {
    const auto losses = strategy.run(train_step, model, optimizer, batch);
    // Reading a number waits for the devices: only now and then.
    if (++step == 1 || step % 20 == 0) {
      std::cout << "step " << step << ": loss " << strategy.reduce(ReduceOp::kSum, losses).item<double>()
                << '\n';
    }
  }

  model.eval();  // no dropout from here on
  const torch::NoGradGuard no_grad;
  int64_t right = 0, all = 0;
  for (const auto& batch :
       strategy.distribute_dataset(GeneratedDigits({.count = 1000, .seed = 2}), {.global_batch_size = 300})) {
    // In the dataset's order, however many replicas there are.
    const auto found = strategy.gather(strategy.run(predict_step, model, batch));
    right += found.select(1, 0).eq(found.select(1, 1)).sum().item<int64_t>();
    all += found.size(0);
  }
  std::cout << "test accuracy " << static_cast<double>(right) / static_cast<double>(all) << '\n';
  save_weights("digit_net.safetensors", state_dict(*model.primary()));
} catch (const std::exception&) {
  std::cerr << "error: " << error_text(std::current_exception()) << '\n';
  return 1;
}
