#include "lockstep/training/formats/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/serialize.h>

#include <csignal>
#include <random>
#include <set>
#include <string>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"

// state_file_python_test.py tests the exchange with Python.

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TemporaryFolder;

StateValue small_state() {
  StateValue::Dict dict;
  dict.add("epoch", 3);
  dict.add("weight", torch::arange(12.0).view({3, 4}).t());
  dict.add("flags", torch::tensor({true, false}));
  return dict;
}

void expect_small_state(const StateValue& given) {
  const auto& dict = std::get<StateValue::Dict>(given.data());
  ASSERT_EQ(dict.entries.size(), 3U);
  EXPECT_EQ(*dict.find("epoch")->get_if<int64_t>(), 3);
  EXPECT_TRUE(
      torch::equal(*dict.find("weight")->get_if<torch::Tensor>(), torch::arange(12.0).view({3, 4}).t()));
  EXPECT_TRUE(torch::equal(*dict.find("flags")->get_if<torch::Tensor>(), torch::tensor({true, false})));
}

TEST(StateFileTest, ComesBackWithStridesAndSharedMemory) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  const auto weight = torch::randn({3, 4}, torch::requires_grad());
  const auto image = torch::randn({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
  save_state_file(path, StateValue::List{weight, weight.t(), image, weight[1], torch::ones({1}).expand({5})});
  const auto state = load_state_file(path);
  std::vector<torch::Tensor> tensors;
  for (const auto& item : std::get<StateValue::List>(state.data()))
    tensors.push_back(*item.get_if<torch::Tensor>());
  EXPECT_TRUE(torch::equal(tensors[0], weight));
  EXPECT_FALSE(tensors[0].requires_grad());
  EXPECT_EQ(tensors[1].data_ptr(), tensors[0].data_ptr());
  EXPECT_EQ(tensors[1].strides(), weight.t().strides());
  EXPECT_TRUE(torch::equal(tensors[2], image));
  EXPECT_EQ(tensors[2].strides(), image.strides());
  EXPECT_TRUE(torch::equal(tensors[3], weight[1]));
  EXPECT_EQ(tensors[3].storage().nbytes(), 16U);
  EXPECT_TRUE(torch::equal(tensors[4], torch::ones({5})));
}

/// Python gives all tensors of a record the dtype of the first.
TEST(StateFileTest, TensorsOfOtherDtypesOverOneMemoryHaveRecordsOfTheirOwn) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  const auto numbers = torch::randn({4});
  const auto complex = torch::randn({3}, torch::kComplexFloat);
  const std::vector<torch::Tensor> saved{numbers, numbers.view(torch::kInt), complex,
                                         torch::view_as_real(complex)};
  save_state_file(path, StateValue::List(saved.begin(), saved.end()));
  const auto state = load_state_file(path);
  std::set<const void*> places;
  const auto& loaded = std::get<StateValue::List>(state.data());
  ASSERT_EQ(loaded.size(), saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const auto& tensor = *loaded[i].get_if<torch::Tensor>();
    EXPECT_EQ(tensor.scalar_type(), saved[i].scalar_type());
    EXPECT_TRUE(torch::equal(tensor, saved[i]));
    places.insert(tensor.const_data_ptr());
  }
  EXPECT_EQ(places.size(), saved.size());
}

TEST(StateFileTest, NamesThatArePathsAreNamesAndNothingElse) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  StateValue::Dict saved;
  const std::vector<std::string> names{"a/b", "../c", "/etc/passwd", std::string("d\0e", 3), ""};
  for (const auto& name : names) saved.add(name, torch::ones({3}));
  save_state_file(path, saved);
  const auto loaded = load_state_file(path);
  for (const auto& name : names) {
    const auto* value = std::get<StateValue::Dict>(loaded.data()).find(name);
    ASSERT_NE(value, nullptr) << name;
    EXPECT_TRUE(torch::equal(*value->get_if<torch::Tensor>(), torch::ones({3})));
  }
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(StateFileTest, TensorsThatPythonCannotReadAreRefusedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const auto path = folder.write("state.pt", "old");
  for (const auto& tensor : {torch::Tensor(), torch::zeros({2, 2}).to_sparse(),
                             torch::quantize_per_tensor(torch::ones({2}), 0.1, 0, torch::kQInt8)}) {
    EXPECT_THAT(error_of<InvalidArgument>([&] { save_state_file(path, StateValue::List{tensor}); }),
                StartsWith("[save_state_file] expected "));
  }
  EXPECT_EQ(bytes_of(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(StateFileTest, AFullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  save_state_file(path, small_state());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t size : {0, 100, 20'000, 79'000}) {
    const rlimit limit{.rlim_cur = size, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto message =
        error_of<std::system_error>([&] { save_state_file(path, StateValue::List{torch::ones({20'000})}); });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_THAT(message, HasSubstr("cannot write " + path)) << size;
  }
  std::signal(SIGXFSZ, previous);
  expect_small_state(load_state_file(path));
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(StateFileTest, TruncatedAnywhereIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  save_state_file(path, small_state());
  const auto whole = bytes_of(path);
  for (size_t size = 0; size < whole.size(); size += 7) {
    const auto cut = folder.write("cut.pt", whole.substr(0, size));
    EXPECT_THAT(error_of<CheckpointError>([&] { load_state_file(cut); }), StartsWith(cut + ": ")) << size;
  }
}

TEST(StateFileTest, FlippedBitsAreFoundOrChangeNothing) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  save_state_file(path, small_state());
  const auto whole = bytes_of(path);
  std::mt19937_64 random(1);
  int num_refused = 0;
  for (int round = 0; round < 600; ++round) {
    auto bytes = whole;
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    const auto flipped = folder.write("flipped.pt", bytes);
    try {
      expect_small_state(load_state_file(flipped));
    } catch (const CheckpointError&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 200);
}

TEST(StateFileTest, ArchivesOfLibTorchsOwnSaveAreNamed) {
  const TemporaryFolder folder;
  const auto path = folder.file("module.pt");
  torch::save(torch::ones({2}), path);
  EXPECT_THAT(error_of<CheckpointError>([&] { load_state_file(path); }), HasSubstr("TorchScript"));
}

}  // namespace
}  // namespace lockstep
