// The flows of tests/bench/fabric.py over the same leaf-spine in ns-3: what its packet-hop costs on this machine.
//
//   ns3_leaf_spine leaves spines hosts_per_leaf rate_bps delay_ps frame_bytes gap_ps duration_ps
//
// Each host sends UDP frames of frame_bytes (Ethernet, without FCS, as the other side counts) every gap_ps to the host of
// the same number on the next leaf. Leaves reach other leaves by one spine for each destination leaf and host number.
// Prints "hops seconds": frames that a node received, and processor time of Simulator::Run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

using namespace ns3;

namespace {

uint64_t hops = 0;

void Received(Ptr<const Packet>) { hops++; }

constexpr uint32_t kHeaderBytes = 14 + 20 + 8; // what the other side counts of a frame beside its payload
constexpr uint16_t kPort = 4791;

Ipv4Address HostAddress(uint32_t leaf, uint32_t host)
{
    return Ipv4Address(10u << 24 | (leaf + 1) << 16 | (host + 1));
}

struct Wire
{
    uint32_t low, high; // interface numbers in the IPv4 stacks
};

} // namespace

int main(int argc, char** argv)
{
    if (argc != 9)
    {
        std::fprintf(stderr, "usage: %s leaves spines hosts_per_leaf rate_bps delay_ps frame_bytes gap_ps duration_ps\n", argv[0]);
        return 2;
    }
    const uint32_t leaves = std::atoi(argv[1]), spines = std::atoi(argv[2]), hosts = std::atoi(argv[3]);
    const uint64_t rate = std::strtoull(argv[4], nullptr, 10);
    const int64_t delayPs = std::atoll(argv[5]), gapPs = std::atoll(argv[7]), durationPs = std::atoll(argv[8]);
    const uint32_t frameBytes = std::atoi(argv[6]);
    Time::SetResolution(Time::PS);

    NodeContainer leaf(leaves), spine(spines), host(leaves * hosts);
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    stack.SetIpv6StackInstall(false);
    stack.Install(leaf);
    stack.Install(spine);
    stack.Install(host);

    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
    link.SetDeviceAttribute("Mtu", UintegerValue(9216));
    link.SetChannelAttribute("Delay", TimeValue(PicoSeconds(delayPs)));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("10000p"));

    // A link net of two addresses; routes name interfaces, so only the hosts' own addresses matter.
    uint32_t nets = 0;
    auto join = [&](Ptr<Node> low, Ptr<Node> high, Ipv4Address lowAddress) {
        NetDeviceContainer devices = link.Install(low, high);
        Wire wire{};
        for (uint32_t end = 0; end < 2; end++)
        {
            Ptr<Ipv4> ip = devices.Get(end)->GetNode()->GetObject<Ipv4>();
            const uint32_t number = ip->AddInterface(devices.Get(end));
            const bool own = end == 0 && lowAddress != Ipv4Address::GetAny();
            const Ipv4Address address = own ? lowAddress : Ipv4Address(192u << 24 | 168u << 16 | (2 * nets + end));
            ip->AddAddress(number, Ipv4InterfaceAddress(address, Ipv4Mask("255.255.255.255")));
            ip->SetUp(number);
            (end == 0 ? wire.low : wire.high) = number;
            devices.Get(end)->TraceConnectWithoutContext("MacRx", MakeCallback(&Received));
        }
        nets++;
        return wire;
    };

    std::vector<std::vector<Wire>> down(leaves), up(leaves);
    for (uint32_t i = 0; i < leaves; i++)
    {
        for (uint32_t n = 0; n < hosts; n++)
        {
            down[i].push_back(join(host.Get(i * hosts + n), leaf.Get(i), HostAddress(i, n)));
        }
        for (uint32_t j = 0; j < spines; j++)
        {
            up[i].push_back(join(leaf.Get(i), spine.Get(j), Ipv4Address::GetAny()));
        }
    }
    for (uint32_t i = 0; i < leaves; i++)
    {
        for (uint32_t n = 0; n < hosts; n++)
        {
            routing.GetStaticRouting(host.Get(i * hosts + n)->GetObject<Ipv4>())->SetDefaultRoute(Ipv4Address::GetAny(), down[i][n].low);
            routing.GetStaticRouting(leaf.Get(i)->GetObject<Ipv4>())->AddHostRouteTo(HostAddress(i, n), down[i][n].high);
            const uint32_t next = (i + 1) % leaves; // the only leaf that this one sends to
            if (next != i)
            {
                routing.GetStaticRouting(leaf.Get(i)->GetObject<Ipv4>())->AddHostRouteTo(HostAddress(next, n), up[i][n % spines].low);
            }
        }
        for (uint32_t j = 0; j < spines; j++)
        {
            routing.GetStaticRouting(spine.Get(j)->GetObject<Ipv4>())
                ->AddNetworkRouteTo(Ipv4Address(10u << 24 | (i + 1) << 16), Ipv4Mask("255.255.0.0"), up[i][j].high);
        }
    }

    for (uint32_t i = 0; i < leaves; i++)
    {
        for (uint32_t n = 0; n < hosts; n++)
        {
            UdpServerHelper server(kPort);
            server.Install(host.Get(i * hosts + n)).Start(Seconds(0));
            UdpClientHelper client(HostAddress((i + 1) % leaves, n), kPort);
            client.SetAttribute("MaxPackets", UintegerValue(UINT32_MAX));
            client.SetAttribute("Interval", TimeValue(PicoSeconds(gapPs)));
            client.SetAttribute("PacketSize", UintegerValue(frameBytes - kHeaderBytes));
            client.Install(host.Get(i * hosts + n)).Start(PicoSeconds(1000 * (i * hosts + n)));
        }
    }
    Simulator::Stop(PicoSeconds(durationPs));
    const std::clock_t start = std::clock();
    Simulator::Run();
    const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    Simulator::Destroy();
    std::printf("%llu %.6f\n", static_cast<unsigned long long>(hops), seconds);
    return 0;
}
