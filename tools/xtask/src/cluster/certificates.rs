//! Makes the certificates: an authority of the cluster's own, and a certificate and a kubeconfig for each part.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

use super::Place;
use super::{configuration, network};

/// The clients: kubeconfig, user, groups.
const CLIENTS: [(&str, &str, &[&str]); 5] = [
    ("kubeconfig", "admin", &["system:masters"]),
    ("controller-manager.kubeconfig", "system:kube-controller-manager", &[]),
    ("scheduler.kubeconfig", "system:kube-scheduler", &[]),
    ("kubelet.kubeconfig", "system:node:localhost", &["system:nodes"]),
    ("to-kubelet", "kube-apiserver", &["system:masters"]),
];

pub(super) fn folder(place: &Place) -> PathBuf {
    place.state.join("certificates")
}

pub(super) fn write(place: &Place) -> anyhow::Result<()> {
    let folder = folder(place);
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&place.state, fs::Permissions::from_mode(0o700))?;
    let mut params = named("manciple-test-cluster", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    fs::write(folder.join("ca.crt"), authority.pem())?;
    fs::write(folder.join("ca.key"), authority.key().serialize_pem())?;
    let accounts = KeyPair::generate()?;
    fs::write(folder.join("accounts.key"), accounts.serialize_pem())?;
    fs::write(folder.join("accounts.pub"), accounts.public_key_pem())?;

    for (file, addresses) in [
        ("apiserver", &["127.0.0.1", network::GATEWAY, configuration::SERVICE_ADDRESS][..]),
        ("kubelet", &["127.0.0.1"]),
    ] {
        let mut params = named(file, &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        for address in addresses {
            let address: IpAddr = address.parse()?;
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        sign(&folder, file, &params, &authority)?;
    }
    for (file, user, groups) in CLIENTS {
        let mut params = named(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        sign(&folder, file, &params, &authority)?;
        fs::write(place.state.join(file), kubeconfig(&folder, file))?;
    }
    Ok(())
}

fn named(user: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params
}

fn sign(
    folder: &Path,
    file: &str,
    params: &CertificateParams,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    fs::write(folder.join(format!("{file}.crt")), params.signed_by(&key, authority)?.pem())?;
    Ok(fs::write(folder.join(format!("{file}.key")), key.serialize_pem())?)
}

fn kubeconfig(folder: &Path, file: &str) -> String {
    let folder = folder.display();
    let server = format!("https://127.0.0.1:{}", configuration::API_PORT);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters: [{{name: test, cluster: {{server: \"{server}\", certificate-authority: \"{folder}/ca.crt\"}}}}]\n\
         users: [{{name: test, user: {{client-certificate: \"{folder}/{file}.crt\", client-key: \"{folder}/{file}.key\"}}}}]\n\
         contexts: [{{name: test, context: {{cluster: test, user: test}}}}]\n"
    )
}
