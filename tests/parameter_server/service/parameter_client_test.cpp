#include "lockstep/parameter_server/service/parameter_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/rpc/rpc_server.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Parameter servers in this process, each of which can be stopped and started again.
class Servers {
 public:
  explicit Servers(int count) : services_(count), servers_(count) {
    for (int i = 0; i < count; ++i) start(i);
    for (const auto& server : servers_) ports_.push_back(server->port());
  }
  void start(int server, int port = 0) {
    servers_.at(server) = std::make_unique<RpcServer>(
        RpcServerOptions{.port = port, .token = "secret"},
        [&service = services_.at(server)](const RpcMessage& request) { return service.handle(request); });
  }
  void stop(int server) { servers_.at(server).reset(); }
  /// As a server does after it restored its shards.
  void start_again(int server) { start(server, ports_.at(server)); }

  ParameterService& service(int server) { return services_.at(server); }
  ParameterClientOptions options(std::shared_ptr<const Partitioner> partitioner = nullptr) const {
    ParameterClientOptions options{.partitioner = std::move(partitioner)};
    for (size_t i = 0; i < ports_.size(); ++i)
      options.servers.push_back({.name = "server " + std::to_string(i),
                                 .host = "127.0.0.1",
                                 .port = ports_[i],
                                 .token = "secret",
                                 .connect_timeout = std::chrono::seconds(30)});
    return options;
  }

 private:
  std::vector<ParameterService> services_;
  std::vector<std::unique_ptr<RpcServer>> servers_;
  std::vector<int> ports_;
};

std::shared_ptr<const Partitioner> shards(int64_t count) {
  return std::make_shared<FixedShardsPartitioner>(count);
}

TEST(ParameterClient, SpreadsVariablesAndTheirShardsOverTheServers) {
  Servers servers(3);
  ParameterClient client(servers.options(shards(2)));
  const int table = client.add_variable("table", {5, 2});
  const int bias = client.add_variable("bias", {1});
  const int scalar = client.add_variable("scalar", {}, torch::kDouble);
  client.create(table, torch::arange(10, torch::kFloat).view({5, 2}), SgdRule{});
  client.create(bias, torch::full({1}, 7.F), SgdRule{});
  client.create(scalar, torch::full({}, 8., torch::kDouble), SgdRule{});
  EXPECT_THAT(client.servers_of(table), ElementsAre(0, 1));
  EXPECT_THAT(client.servers_of(bias), ElementsAre(2));
  EXPECT_THAT(client.servers_of(scalar), ElementsAre(0));
  EXPECT_THAT(servers.service(0).shard_names(), ElementsAre("scalar", "table/part_0"));
  EXPECT_THAT(servers.service(1).shard_names(), ElementsAre("table/part_1"));
  EXPECT_THAT(servers.service(2).shard_names(), ElementsAre("bias"));
  EXPECT_EQ(servers.service(0).shard("table/part_0")->num_rows(), 3);

  const auto pulled = client.pull({{bias, {}}, {table, {}}, {scalar, {}}});
  EXPECT_TRUE(pulled.at(0).values.equal(torch::full({1}, 7.F)));
  EXPECT_TRUE(pulled.at(1).values.equal(torch::arange(10, torch::kFloat).view({5, 2})));
  EXPECT_TRUE(pulled.at(2).values.equal(torch::full({}, 8., torch::kDouble)));
}

TEST(ParameterClient, HasServersMakeLargeValues) {
  const UniformValues uniform{.low = -1, .high = 1, .seed = 6};
  const auto whole = make_values(uniform, {0, 11}, torch::empty({0, 3}));
  for (const int64_t num_shards : {1, 2, 5}) {
    Servers servers(2);
    ParameterClient client(servers.options(shards(num_shards)));
    const int table = client.add_variable("table", {11, 3});
    const auto created = client.create(table, uniform, SgdRule{});
    EXPECT_EQ(created.num_new, num_shards);
    EXPECT_EQ(created.num_restored, 0);
    EXPECT_EQ(client.create(table, uniform, SgdRule{}).num_new, 0);
    EXPECT_TRUE(client.pull({{table, {}}}).at(0).values.equal(whole));
    const int scalar = client.add_variable("scalar", {});
    EXPECT_THROW(client.create(scalar, uniform, SgdRule{}), InvalidArgument);
  }
}

TEST(ParameterClient, SaysWhichServerSavesNothing) {
  Servers servers(2);
  ParameterClient client(servers.options());
  EXPECT_THAT([&] { client.save("here"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("server 0 (127.0.0.1:")));
}

TEST(ParameterClient, GivesTheRowsThatAreWanted) {
  const auto whole = torch::randn({50, 3});
  for (const int64_t num_shards : {1, 2, 7, 50}) {
    Servers servers(2);
    ParameterClient client(servers.options(shards(num_shards)));
    const int table = client.add_variable("table", {50, 3});
    client.create(table, whole, SgdRule{});
    for (const auto& rows : {torch::arange(50), torch::tensor({0, 49}), torch::tensor({24, 25}),
                             torch::tensor({30}), torch::empty({0}, torch::kLong)}) {
      const auto pulled = client.pull({{table, rows}}).at(0);
      EXPECT_TRUE(pulled.values.equal(whole.index_select(0, rows))) << num_shards << rows;
    }
  }
}

TEST(ParameterClient, RefusesRowsThatAreOutOfOrderOrRange) {
  Servers servers(1);
  ParameterClient client(servers.options());
  const int table = client.add_variable("table", {5, 2});
  client.create(table, torch::zeros({5, 2}), SgdRule{});
  const auto pull = [&](const at::Tensor& rows) { return [&, rows] { client.pull({{table, rows}}); }; };
  EXPECT_THAT(pull(torch::tensor({1, 1})),
              ThrowsMessage<InvalidArgument>(HasSubstr("table: expected rows in")));
  EXPECT_THAT(pull(torch::tensor({4, 5})),
              ThrowsMessage<InvalidArgument>(HasSubstr("rows of 0 to 4, but got 5")));
  EXPECT_THAT(pull(torch::tensor({-1, 3})), ThrowsMessage<InvalidArgument>(HasSubstr("but got -1")));
  EXPECT_THROW(pull(torch::tensor({0.5}))(), InvalidArgument);
  EXPECT_THROW(client.pull({{7, {}}}), InvalidArgument);
  EXPECT_THROW(client.add_variable("table", {1}), InvalidArgument);
  EXPECT_THROW(client.create(table, torch::zeros({5, 3}), SgdRule{}), InvalidArgument);
  EXPECT_THROW(client.push({}, {{.variable = table, .values = torch::zeros({5, 3}), .versions = {0}}}),
               InvalidArgument);
  EXPECT_THROW(client.push({}, {{.variable = table, .values = torch::zeros({5, 2})}}), InvalidArgument);
}

// Oracle: the optimizer on one device. ATen's loops round differently at the end of a tensor, so shards equal
// the whole only within rounding.
TEST(ParameterClient, TrainsAsTheOptimizerDoesOnOneDevice) {
  torch::manual_seed(1);
  Servers servers(3);
  ParameterClient client(servers.options(shards(4)));
  const int weight = client.add_variable("weight", {10, 4}, torch::kDouble);
  const int bias = client.add_variable("bias", {4}, torch::kDouble);
  const auto initial_weight = torch::randn({10, 4}, torch::kDouble);
  const auto initial_bias = torch::randn({4}, torch::kDouble);
  const AdamRule rule{.beta1 = 0.8};
  client.create(weight, initial_weight, rule);
  client.create(bias, initial_bias, rule);

  auto own_weight = initial_weight.clone().requires_grad_();
  auto own_bias = initial_bias.clone().requires_grad_();
  FusedAdam optimizer({own_weight, own_bias}, FusedAdamOptions(0.1).betas({0.8, 0.999}));
  for (uint64_t step = 0; step < 5; ++step) {
    const auto pulled = client.pull({{weight, {}}, {bias, {}}});
    EXPECT_TRUE(pulled[0].values.allclose(own_weight, 0, 1e-12));
    EXPECT_TRUE(pulled[1].values.allclose(own_bias, 0, 1e-12));
    own_weight.mutable_grad() = torch::randn({10, 4}, torch::kDouble);
    own_bias.mutable_grad() = torch::randn({4}, torch::kDouble);
    const auto summary = client.push(
        {.closure = step},
        {{.variable = weight, .values = own_weight.grad(), .versions = pulled[0].versions, .lr = 0.1},
         {.variable = bias, .values = own_bias.grad(), .versions = pulled[1].versions, .lr = 0.1}});
    EXPECT_EQ(summary.staleness.size(), 4U + 4U);
    EXPECT_THAT(summary.staleness, Each(0U));
    optimizer.step();
  }
  EXPECT_TRUE(client.pull({{weight, {}}}).at(0).values.allclose(own_weight, 0, 1e-12));
}

TEST(ParameterClient, TrainsRowsAsSparseAdagradDoesOnOneDevice) {
  torch::manual_seed(2);
  Servers servers(2);
  ParameterClient client(servers.options(shards(3)));
  const int table = client.add_variable("table", {20, 4}, torch::kDouble);
  auto own = torch::randn({20, 4}, torch::kDouble);
  client.create(table, own, AdagradRule{});
  own = own.clone().requires_grad_();
  torch::optim::Adagrad optimizer({own}, torch::optim::AdagradOptions(0.1));
  for (uint64_t step = 0; step < 5; ++step) {
    const auto rows = std::get<0>(torch::randperm(20).narrow(0, 0, 6).sort()).contiguous();
    const auto pulled = client.pull({{table, rows}}).at(0);
    EXPECT_TRUE(pulled.values.allclose(own.detach().index_select(0, rows), 0, 1e-12));
    const auto gradient = torch::randn({6, 4}, torch::kDouble);
    client.push(
        {.closure = step},
        {{.variable = table, .rows = rows, .values = gradient, .versions = pulled.versions, .lr = 0.1}});
    own.mutable_grad() = torch::sparse_coo_tensor(rows.unsqueeze(0), gradient, {20, 4});
    optimizer.step();
  }
  EXPECT_TRUE(client.pull({{table, {}}}).at(0).values.allclose(own, 0, 1e-12));
}

TEST(ParameterClient, MovesMoreThanOneMessageHolds) {
  torch::manual_seed(3);
  constexpr int kVariables = 9;
  constexpr int64_t kRows = 12'000;  // of 64 numbers: 3 MiB
  Servers servers(2);
  ParameterClient client(servers.options());
  const auto rows = torch::arange(0, kRows, 2);
  std::vector<at::Tensor> whole;
  std::vector<ParameterClient::Wanted> wanted;
  std::vector<ParameterClient::Gradient> gradients;
  for (int i = 0; i < kVariables; ++i) {
    const int variable = client.add_variable("table " + std::to_string(i), {kRows, 64});
    whole.push_back(torch::randn({kRows, 64}));
    client.create(variable, whole.back(), SgdRule{});
    wanted.push_back({variable, i % 3 == 0 ? at::Tensor() : rows});
  }
  auto pulled = client.pull(wanted);
  for (int i = 0; i < kVariables; ++i) {
    EXPECT_TRUE(pulled[i].values.equal(i % 3 == 0 ? whole[i] : whole[i].index_select(0, rows))) << i;
    gradients.push_back({.variable = wanted[i].variable,
                         .rows = wanted[i].rows,
                         .values = torch::randn_like(pulled[i].values),
                         .versions = pulled[i].versions,
                         .lr = 0.5});
  }
  EXPECT_EQ(client.push({}, gradients).staleness.size(), size_t{kVariables});
  const auto stepped = client.pull(wanted);
  for (int i = 0; i < kVariables; ++i)
    EXPECT_TRUE(stepped[i].values.equal(pulled[i].values - 0.5F * gradients[i].values)) << i;
}

TEST(ParameterClient, SaysHowStaleAGradientWas) {
  Servers servers(1);
  ParameterClient slow(servers.options());
  ParameterClient fast(servers.options());
  for (auto* client : {&slow, &fast})
    client->create(client->add_variable("x", {1}), torch::zeros({1}), SgdRule{});
  const auto old = slow.pull({{0, {}}}).at(0);
  for (uint64_t step = 0; step < 3; ++step) {
    const auto versions = fast.pull({{0, {}}}).at(0).versions;
    EXPECT_THAT(
        fast.push({.closure = step}, {{.values = torch::ones({1}), .versions = versions, .lr = 1}}).staleness,
        ElementsAre(0U));
  }
  EXPECT_THAT(
      slow.push({.closure = 3}, {{.values = torch::ones({1}), .versions = old.versions, .lr = 1}}).staleness,
      ElementsAre(3U));
  EXPECT_EQ(slow.pull({{0, {}}}).at(0).values.item<float>(), -4);
}

TEST(ParameterClient, KeepsTheOldestVersionOfSeveralReads) {
  Servers servers(2);
  ParameterClient client(servers.options(shards(2)));
  const int table = client.add_variable("table", {4});
  client.create(table, torch::zeros({4}), SgdRule{});
  const auto first_half = torch::tensor({int64_t{0}, int64_t{1}});
  std::vector<uint64_t> versions;
  const auto read = [&](const at::Tensor& rows) {
    ParameterClient::keep_older(versions, client.pull({{table, rows}}).at(0).versions);
    return versions;
  };
  EXPECT_THAT(read(first_half), ElementsAre(0U, ParameterClient::kNotRead));
  client.push({}, {{.variable = table, .values = torch::ones({4}), .versions = {0, 0}, .lr = 1}});
  // Version 0 is older than version 1, although a table begins with it.
  EXPECT_THAT(read(first_half), ElementsAre(0U, ParameterClient::kNotRead));
  EXPECT_THAT(read({}), ElementsAre(0U, 1U));
}

TEST(ParameterClient, StepsOnceByAPushThatIsRepeated) {
  Servers servers(2);
  ParameterClient client(servers.options(shards(2)));
  const int x = client.add_variable("x", {4});
  client.create(x, torch::zeros({4}), SgdRule{});
  const std::vector<ParameterClient::Gradient> gradients{
      {.variable = x, .values = torch::ones({4}), .versions = {0, 0}, .lr = 1}};
  EXPECT_EQ(client.push({.closure = 1}, gradients).num_repeated, 0);
  EXPECT_EQ(client.push({.closure = 1}, gradients).num_repeated, 2);
  client.forget_before(9);
  EXPECT_EQ(client.push({.closure = 8}, gradients).num_repeated, 2);
  EXPECT_TRUE(client.pull({{x, {}}}).at(0).values.equal(torch::full({4}, -1.F)));
}

// Oracle: one optimizer whose gradient is the sum of the workers' gradients.
TEST(ParameterClient, MakesOneStepOfAllWorkersGradients) {
  torch::manual_seed(2);
  constexpr uint32_t kWorkers = 3;
  Servers servers(2);
  std::vector<std::unique_ptr<ParameterClient>> workers;
  std::vector<int> variables;
  const auto initial = torch::randn({9, 4}, torch::kDouble);
  const auto initial_table = torch::randn({30, 2}, torch::kDouble);
  for (uint32_t i = 0; i < kWorkers; ++i) {
    workers.push_back(std::make_unique<ParameterClient>(servers.options(shards(2))));
    const int weight = workers.back()->add_variable("weight", {9, 4}, torch::kDouble);
    const int table = workers.back()->add_variable("table", {30, 2}, torch::kDouble);
    workers.back()->create(weight, initial, AdamRule{});
    workers.back()->create(table, initial_table, SgdRule{});
    variables = {weight, table};
  }
  ParameterShard whole_weight("weight", initial, AdamRule{});
  ParameterShard whole_table("table", initial_table, SgdRule{});
  for (uint64_t step = 0; step < 4; ++step) {
    auto sum = torch::zeros({9, 4}, torch::kDouble);
    auto table_sum = torch::zeros({30, 2}, torch::kDouble);
    for (uint32_t i = kWorkers; i-- > 0;) {
      const auto rows = std::get<0>(torch::randperm(30, torch::kLong).narrow(0, 0, 6).sort());
      const auto pulled = workers[i]->pull({{variables[0], {}}, {variables[1], rows}});
      EXPECT_TRUE(pulled[0].values.allclose(whole_weight.pull().values, 0, 1e-12));
      EXPECT_TRUE(pulled[1].values.allclose(whole_table.pull_rows(rows).values, 0, 1e-12));
      const auto gradient = torch::randn({9, 4}, torch::kDouble);
      const auto table_gradient = torch::randn({6, 2}, torch::kDouble);
      sum += gradient;
      table_sum.index_add_(0, rows, table_gradient);
      const std::vector<ParameterClient::Gradient> gradients{
          {.variable = variables[0], .values = gradient, .versions = pulled[0].versions, .lr = 0.1},
          {.variable = variables[1],
           .rows = rows,
           .values = table_gradient,
           .versions = pulled[1].versions,
           .lr = 0.1}};
      if (i == 0) {
        EXPECT_THAT(workers[0]->commit(step, kWorkers), ElementsAre(0));
      }
      workers[i]->contribute(step, i, gradients);
      workers[i]->contribute(step, i, gradients);  // like the replacement of a lost worker
    }
    EXPECT_THAT(workers[0]->commit(step, kWorkers), ElementsAre());
    EXPECT_THAT(workers[0]->commit(step, kWorkers), ElementsAre());  // the first answer may have been lost
    const PushedStep pushed{.id = {step, 0}, .lr = 0.1, .version = step};
    whole_weight.push(sum, pushed);
    whole_table.push(table_sum, pushed);
  }
}

TEST(ParameterClient, GoesOnWhereAServerComesBack) {
  Servers servers(2);
  ParameterClient client(servers.options(shards(2)));
  const int x = client.add_variable("x", {4});
  client.create(x, torch::arange(4, torch::kFloat), SgdRule{});
  servers.stop(1);
  std::thread restarting([&] {
    std::this_thread::sleep_for(milliseconds(50));
    servers.start_again(1);
  });
  EXPECT_TRUE(client.pull({{x, {}}}).at(0).values.equal(torch::arange(4, torch::kFloat)));
  EXPECT_EQ(client.num_reconnects(), 1);
  restarting.join();
}

TEST(ParameterClient, NamesAServerThatDoesNotComeBack) {
  Servers servers(2);
  auto options = servers.options(shards(2));
  for (auto& server : options.servers) server.connect_timeout = milliseconds(50);
  ParameterClient client(options);
  const int x = client.add_variable("x", {4});
  client.create(x, torch::zeros({4}), SgdRule{});
  servers.stop(1);
  EXPECT_THAT([&] { client.pull({{x, {}}}); }, ThrowsMessage<PeerLost>(HasSubstr("server 1 (127.0.0.1:")));
  // Calls that do not need the stopped server still work, and all calls do once it is back.
  EXPECT_TRUE(client.pull({{x, torch::tensor({0})}}).at(0).values.equal(torch::zeros({1})));
  servers.start_again(1);
  EXPECT_TRUE(client.pull({{x, {}}}).at(0).values.equal(torch::zeros({4})));
}

TEST(ParameterClient, GivesTheErrorOfOneServerAndUsesTheOthersOn) {
  Servers servers(2);
  ParameterClient client(servers.options());
  const int there = client.add_variable("there", {1});
  const int absent = client.add_variable("absent", {1});
  client.create(there, torch::ones({1}), SgdRule{});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(
        [&] {
          client.pull({{there, {}}, {absent, {}}});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("expected one of its 0 shards, but got 'absent'")));
    EXPECT_EQ(client.pull({{there, {}}}).at(0).values.item<float>(), 1);
  }
}

/// Rows of ids of a table that grows, in order.
torch::Tensor growing_rows_of(const std::vector<int64_t>& ids, int bits) {
  std::vector<int64_t> rows;
  for (const int64_t id : ids) rows.push_back(scattered_row(id, bits));
  return std::get<0>(torch::sort(torch::tensor(rows, torch::kLong)));
}

TEST(ParameterClient, ATableThatGrowsHasAPartOfItsRowsAndOfItsMemoryOnEachServer) {
  constexpr int kBits = 58;
  constexpr int64_t kMaxBytes = 60'000;
  Servers servers(3);
  ParameterClient client(servers.options());
  const RowGrowth growth{.max_bytes = kMaxBytes, .num_bits = kBits};
  const int table = client.add_variable("t", {int64_t{1} << kBits, 2}, torch::kDouble, growth);
  EXPECT_THAT(client.servers_of(table), ElementsAre(0, 1, 2));
  const auto initial = NormalValues{.std = 1, .seed = 5};
  EXPECT_EQ(client.create(table, initial, SgdRule{}).num_new, 3);

  std::vector<int64_t> ids(300);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const auto rows = growing_rows_of(ids, kBits);
  const auto before = client.pull({{.variable = table, .rows = rows}}).front();
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const int64_t id = id_of_scattered_row(rows[i].item<int64_t>(), kBits);
    EXPECT_TRUE(
        before.values[i].equal(make_values(initial, {id, id + 1}, torch::empty({0, 2}, torch::kDouble))[0]));
  }
  const auto gradients = torch::randn({300, 2}, torch::kDouble);
  client.push(
      {.closure = 0, .number = 0},
      {{.variable = table, .rows = rows, .values = gradients, .versions = before.versions, .lr = 0.5}});
  const auto after = client.pull({{.variable = table, .rows = rows}}).front();
  EXPECT_TRUE(torch::allclose(after.values, before.values - 0.5 * gradients, 0, 1e-15));
  int64_t num_rows = 0;
  for (int i = 0; i < 3; ++i) {
    const auto extent = servers.service(i).shard("t/part_" + std::to_string(i))->extent();
    EXPECT_NEAR(static_cast<double>(extent.rows), 100, 40);
    EXPECT_LE(extent.bytes, kMaxBytes / 3);
    num_rows += extent.rows;
  }
  EXPECT_EQ(num_rows, 300);

  // Another process with another limit is refused.
  ParameterClient other(servers.options());
  other.add_variable("t", {int64_t{1} << kBits, 2}, torch::kDouble, RowGrowth{2 * kMaxBytes, kBits});
  EXPECT_THAT([&] { other.create(0, initial, SgdRule{}); },
              ThrowsMessage<std::exception>(HasSubstr("expected a limit of 20000 bytes")));
  EXPECT_THAT(
      [&] {
        client.add_variable("u", {4, 2}, torch::kDouble, RowGrowth{2, 2});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected memory for 3 servers, but got 2 bytes")));
}

}  // namespace
}  // namespace lockstep
