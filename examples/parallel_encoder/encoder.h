#pragma once

#include <torch/torch.h>

// A transformer encoder that classifies sequences of tokens, as one writes it for one device: it knows
// nothing of ranks.

struct EncoderOptions {
  int64_t vocabulary = 32;
  int64_t tokens = 16;  // longest sequence
  int64_t features = 32;
  int64_t heads = 4;
  int64_t hidden = 64;
  int64_t blocks = 2;
  int64_t classes = 4;
  double dropout = 0;  // of what a block adds
};

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const EncoderOptions& options) : head_features(options.features / options.heads) {
    const auto linear = [&](bool bias) {
      return torch::nn::Linear(torch::nn::LinearOptions(options.features, options.features).bias(bias));
    };
    queries = register_module("queries", linear(true));
    keys = register_module("keys", linear(false));  // softmax cancels a bias of keys
    values = register_module("values", linear(true));
    output = register_module("output", linear(true));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto by_head = [&](const torch::Tensor& y) {
      return y.unflatten(-1, {-1, head_features}).transpose(1, 2);
    };
    const auto q = by_head(queries(x));
    const auto k = by_head(keys(x));
    const auto v = by_head(values(x));
    return output(at::scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2));
  }

  int64_t head_features;
  torch::nn::Linear queries{nullptr}, keys{nullptr}, values{nullptr}, output{nullptr};
};
TORCH_MODULE(Attention);

struct EncoderBlockImpl : torch::nn::Module {
  explicit EncoderBlockImpl(const EncoderOptions& options) : dropout(options.dropout) {
    const auto norm = [&] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.features})); };
    norm1 = register_module("norm1", norm());
    attention = register_module("attention", Attention(options));
    norm2 = register_module("norm2", norm());
    up = register_module("up", torch::nn::Linear(options.features, options.hidden));
    down = register_module("down", torch::nn::Linear(options.hidden, options.features));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = x + torch::dropout(attention(norm1(x)), dropout, is_training());
    return x + torch::dropout(down(torch::gelu(up(norm2(x)))), dropout, is_training());
  }

  double dropout;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  Attention attention{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(EncoderBlock);

struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(const EncoderOptions& options = {}) {
    embedding = register_module("embedding", torch::nn::Embedding(options.vocabulary, options.features));
    positions = register_module("positions", torch::nn::Embedding(options.tokens, options.features));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < options.blocks; ++i) blocks->push_back(EncoderBlock(options));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.features})));
    head = register_module("head", torch::nn::Linear(options.features, options.classes));
  }

  torch::Tensor embed(const torch::Tensor& ids) {
    return embedding(ids) + positions(torch::arange(ids.size(1), ids.options()));
  }
  torch::Tensor classify(const torch::Tensor& x) { return head(norm(x).mean(1)); }

  // Returns logits [sequences, classes] of ids [sequences, tokens].
  torch::Tensor forward(const torch::Tensor& ids) {
    auto x = embed(ids);
    for (const auto& block : *blocks) x = block->as<EncoderBlock>()->forward(x);
    return classify(x);
  }

  torch::nn::Embedding embedding{nullptr}, positions{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Encoder);
