// A lossless Ethernet (Data Center Bridging) router for v1model. docs/p4.md describes it, docs/contract.md binds it.

#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "ingress.p4"
#include "egress.p4"

@pkginfo(name="dcb", version="0.1.0")
V1Switch(DcbParser(), DcbVerifyChecksum(), ingress(), egress(), DcbComputeChecksum(), DcbDeparser()) main;
