#include "lockstep/training/formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryFolder;

std::map<std::string, torch::Tensor> tensors_of(const Safetensors& loaded) {
  return {loaded.tensors.begin(), loaded.tensors.end()};
}

/// Equal in dtype, shape and every bit.
void expect_same_bits(const torch::Tensor& given, const torch::Tensor& expected, const std::string& name) {
  ASSERT_EQ(given.scalar_type(), expected.scalar_type()) << name;
  ASSERT_EQ(given.sizes(), expected.sizes()) << name;
  if (expected.numel() == 0) return;
  const auto bytes = [](const torch::Tensor& tensor) {
    return tensor.contiguous().flatten().view(torch::kUInt8);
  };
  EXPECT_TRUE(torch::equal(bytes(given), bytes(expected))) << name;
}

TEST(SafetensorsTest, EveryDtypeComesBackBitByBit) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.safetensors");
  const auto bytes = torch::arange(48, torch::kUInt8);
  NamedTensors tensors;
  for (const auto dtype :
       {torch::kUInt8, torch::kInt8, torch::kUInt16, torch::kInt16, torch::kUInt32, torch::kInt32,
        torch::kUInt64, torch::kInt64, torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
        torch::kComplexFloat, torch::kFloat8_e4m3fn, torch::kFloat8_e4m3fnuz, torch::kFloat8_e5m2,
        torch::kFloat8_e5m2fnuz, torch::kFloat8_e8m0fnu})
    tensors.emplace_back(c10::toString(dtype), bytes.view(dtype).view({2, -1}));
  tensors.emplace_back("Bool", bytes.remainder(2).to(torch::kBool));
  save_safetensors(path, tensors, {{"format", "pt"}});
  const auto loaded = load_safetensors(path);
  EXPECT_EQ(loaded.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  const auto by_name = tensors_of(loaded);
  ASSERT_EQ(by_name.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) expect_same_bits(by_name.at(name), tensor, name);
}

TEST(SafetensorsTest, ShapesLayoutsAndSharedMemoryAreWrittenInFull) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.safetensors");
  const auto matrix = torch::randn({3, 4}, torch::requires_grad());
  const auto image = torch::randn({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  const NamedTensors tensors = {{"scalar", torch::tensor(2.5)},
                                {"empty", torch::empty({3, 0, 2})},
                                {"matrix", matrix},
                                {"same", matrix},
                                {"transposed", matrix.t()},
                                {"row", matrix[1]},
                                {"expanded", torch::ones({1}).expand({5})},
                                {"channels_last", image},
                                {"conjugated", torch::randn({3}, torch::kComplexFloat).conj()}};
  save_safetensors(path, tensors);
  const auto by_name = tensors_of(load_safetensors(path));
  for (const auto& [name, tensor] : tensors) {
    const auto& given = by_name.at(name);
    EXPECT_TRUE(torch::equal(given, tensor)) << name;
    EXPECT_EQ(given.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(given.is_contiguous() && !given.requires_grad()) << name;
  }
}

TEST(SafetensorsTest, NoTensorsAtAllAreAFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.safetensors");
  save_safetensors(path, {});
  EXPECT_TRUE(load_safetensors(path).tensors.empty());
}

TEST(SafetensorsTest, WhatTheFormatLacksIsRefusedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const auto path = folder.write("weights.safetensors", "old");
  const auto refused = [&](const torch::Tensor& tensor) {
    return error_of<InvalidArgument>([&] {
      save_safetensors(path, {{"good", torch::ones({1})}, {"bad", tensor}});
    });
  };
  EXPECT_THAT(refused(torch::zeros({1}, torch::kComplexDouble)),
              HasSubstr("tensor 'bad': expected a dtype that the format has, but got ComplexDouble"));
  EXPECT_THAT(refused(torch::zeros({2, 2}).to_sparse()), HasSubstr("tensor 'bad': expected a dense tensor"));
  EXPECT_THAT(refused(torch::Tensor()),
              HasSubstr("tensor 'bad': expected a dense tensor, but got an undefined one"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                save_safetensors(path, {{"w", torch::ones({1})}, {"w", torch::ones({1})}});
              }),
              HasSubstr("tensor 'w'"));
  EXPECT_EQ(bytes_of(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(SafetensorsTest, TruncatedAnywhereIsRefusedWithTheFilesName) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.safetensors");
  save_safetensors(path, {{"a", torch::ones({3})}, {"b", torch::ones({2, 2}, torch::kInt64)}});
  const auto whole = bytes_of(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto cut = folder.write("cut.safetensors", whole.substr(0, size));
    EXPECT_THAT(error_of<CheckpointError>([&] { load_safetensors(cut); }), StartsWith(cut + ": ")) << size;
  }
  const auto longer = folder.write("longer.safetensors", whole + "x");
  EXPECT_THAT(error_of<CheckpointError>([&] { load_safetensors(longer); }), HasSubstr("bytes of tensors"));
}

TEST(SafetensorsTest, FilesOfOtherKindsAreRefused) {
  const TemporaryFolder folder;
  for (const std::string& bytes :
       {std::string("PK\3\4 a zip archive"), std::string(100, '\0'), std::string("text")}) {
    const auto path = folder.write("other", bytes);
    EXPECT_THAT(error_of<CheckpointError>([&] { load_safetensors(path); }), StartsWith(path + ": "));
  }
}

}  // namespace
}  // namespace lockstep
